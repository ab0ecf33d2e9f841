#include "tests/unit/fake_kube_api.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

namespace imagefs_guard {
namespace {

using Json = nlohmann::json;
using Query = std::map<std::string, std::string>;

struct Url {
  std::string path;
  Query query;
};

std::string decode(std::string_view text) {
  std::string decoded;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size()) {
      decoded += static_cast<char>(std::stoi(std::string(text.substr(i + 1, 2)), nullptr, 16));
      i += 2;
    } else {
      decoded += text[i];
    }
  }
  return decoded;
}

Url parse_url(std::string_view url) {
  url.remove_prefix(url.find("://") + 3);
  url.remove_prefix(std::min(url.find('/'), url.size()));
  const std::size_t mark = std::min(url.find('?'), url.size());
  Url parsed{std::string(url.substr(0, mark)), {}};
  std::string_view rest = url.substr(std::min(mark + 1, url.size()));
  while (!rest.empty()) {
    const std::string_view pair = rest.substr(0, rest.find('&'));
    const std::size_t equals = std::min(pair.find('='), pair.size());
    parsed.query[std::string(pair.substr(0, equals))] =
        decode(pair.substr(std::min(equals + 1, pair.size())));
    rest.remove_prefix(std::min(pair.size() + 1, rest.size()));
  }
  return parsed;
}

std::string value_of(const Query& query, const std::string& key) {
  const auto it = query.find(key);
  return it == query.end() ? std::string() : it->second;
}

HttpResponse json_response(int status, const Json& body) {
  HttpResponse response;
  response.status = status;
  response.headers = {{"audit-id", "audit-1"}};
  response.body = body.dump();
  return response;
}

HttpResponse failure(int status, const std::string& reason, const std::string& message) {
  return json_response(status,
                       Json{{"kind", "Status"},
                            {"status", "Failure"},
                            {"code", status},
                            {"reason", reason},
                            {"message", message}});
}

/// "/api/v1/namespaces/ns/pods/p" → "/api/v1/pods".
std::string collection_of(const std::string& path) {
  std::string collection = path.substr(0, path.rfind('/'));
  const std::size_t at = collection.find("/namespaces/");
  if (at != std::string::npos) {
    const std::size_t end = collection.find('/', at + 12);
    collection.erase(at, end == std::string::npos ? std::string::npos : end - at);
  }
  return collection;
}

bool matches(const Json& object, const std::string& selector) {
  const std::size_t equals = selector.find('=');
  if (equals == std::string::npos) {
    return true;
  }
  std::string pointer = "/" + selector.substr(0, equals);
  std::replace(pointer.begin(), pointer.end(), '.', '/');
  return object.value(Json::json_pointer(pointer), std::string()) == selector.substr(equals + 1);
}

/// "a=b,c": every part must hold; a part without "=" asks whether the label is there.
bool labels_match(const Json& object, const std::string& selector) {
  const Json labels = object["metadata"].value("labels", Json::object());
  std::string_view rest = selector;
  while (!rest.empty()) {
    const std::string_view part = rest.substr(0, rest.find(','));
    const std::string key(part.substr(0, part.find('=')));
    const bool valued = part.find('=') != std::string_view::npos;
    if (!labels.contains(key) ||
        (valued && labels[key] != std::string(part.substr(key.size() + 1)))) {
      return false;
    }
    rest.remove_prefix(std::min(part.size() + 1, rest.size()));
  }
  return true;
}

/// "/api/v1/pods" lists all namespaces, "/api/v1/namespaces/ns/pods" that one.
bool is_in_collection(const std::string& object_path, const std::string& path) {
  return object_path.substr(0, object_path.rfind('/')) == path ||
         collection_of(object_path) == path;
}

/// Enough of a strategic merge for nodes/status: conditions merge by type.
void strategic_merge(Json& object, const Json& patch) {
  for (const auto& [key, value] : patch.items()) {
    if (key == "conditions" && value.is_array()) {
      for (const Json& condition : value) {
        auto& list = object[key];
        const auto it = std::find_if(list.begin(), list.end(), [&](const Json& other) {
          return other.value("type", "") == condition.value("type", "");
        });
        if (condition.contains("$patch")) {
          if (it != list.end()) {
            list.erase(it);
          }
        } else if (it == list.end()) {
          list.push_back(condition);
        } else {
          it->merge_patch(condition);
        }
      }
    } else if (value.is_object()) {
      strategic_merge(object[key], value);
    } else {
      object[key] = value;
    }
  }
}

}  // namespace

struct FakeKubeApi::Call final : HttpCall {
  Call(FakeKubeApi& owner, std::uint64_t number) : api(owner), alive(owner.alive_), id(number) {}

  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  ~Call() override {
    if (!alive.expired()) {
      api.cancel(id);
    }
  }

  FakeKubeApi& api;
  std::weak_ptr<bool> alive;
  std::uint64_t id;
};

struct FakeKubeApi::State {
  struct Pending {
    HttpRequest request;
    HttpDone done;
  };

  struct Event {
    std::uint64_t version = 0;
    std::string collection;
    Json line;
  };

  struct Watcher {
    std::string collection;
    std::string selector;
    std::function<void(std::string_view)> on_data;
    HttpDone done;
  };

  std::map<std::string, Json> objects;
  std::uint64_t version = 100;
  std::uint64_t compacted = 0;
  std::vector<Event> history;
  std::map<std::uint64_t, Pending> pending;
  std::map<std::uint64_t, Watcher> watchers;
  std::uint64_t next_id = 1;
  std::size_t page_size = 500;
  std::string token;
  int fail_times = 0;
  int fail_status = 0;
  std::string fail_retry_after;
  int break_times = 0;
  ErrorKind break_kind = ErrorKind::Unavailable;
  std::function<void()> before_write;
};

FakeKubeApi::FakeKubeApi(FakeLoop& loop) : loop_(loop), state_(std::make_unique<State>()) {}

FakeKubeApi::~FakeKubeApi() = default;

std::unique_ptr<HttpCall> FakeKubeApi::start(HttpRequest request, HttpDone done) {
  ++request_count_;
  urls_.push_back(request.url);
  const std::uint64_t id = state_->next_id++;
  state_->pending[id] = {std::move(request), std::move(done)};
  loop_.defer([this, id, alive = std::weak_ptr<bool>(alive_)] {
    if (!alive.expired()) {
      deliver(id);
    }
  });
  return std::make_unique<Call>(*this, id);
}

void FakeKubeApi::cancel(std::uint64_t id) {
  state_->pending.erase(id);
  state_->watchers.erase(id);
}

void FakeKubeApi::deliver(std::uint64_t id) {
  const auto it = state_->pending.find(id);
  if (it == state_->pending.end()) {
    return;
  }
  if (state_->break_times > 0) {
    --state_->break_times;
    const HttpDone done = std::move(it->second.done);
    state_->pending.erase(it);
    done(Error{state_->break_kind, "no answer"});
    return;
  }
  HttpResponse response = answer(it->second.request);
  const Url url = parse_url(it->second.request.url);
  if (response.status == 200 && url.query.contains("watch")) {
    open_watch(id, url.query);
    return;
  }
  const HttpDone done = std::move(it->second.done);
  state_->pending.erase(it);
  done(std::move(response));
}

HttpResponse FakeKubeApi::answer(const HttpRequest& request) {
  State& state = *state_;
  if (state.fail_times > 0) {
    --state.fail_times;
    HttpResponse response = failure(state.fail_status, "Injected", "injected failure");
    if (!state.fail_retry_after.empty()) {
      response.headers.emplace_back("retry-after", state.fail_retry_after);
    }
    return response;
  }
  const std::string wanted = "Authorization: Bearer " + state.token;
  if (!state.token.empty() &&
      std::find(request.headers.begin(), request.headers.end(), wanted) == request.headers.end()) {
    return failure(401, "Unauthorized", "Unauthorized");
  }
  const Url url = parse_url(request.url);
  if (request.method != "GET") {
    return write(request, url.path);
  }
  if (url.query.contains("watch")) {
    const std::string version = value_of(url.query, "resourceVersion");
    if (!version.empty() && std::stoull(version) < state.compacted) {
      return failure(410, "Expired", "too old resource version");
    }
    return json_response(200, Json::object());
  }
  if (url.query.contains("limit")) {
    return list(url.query, url.path);
  }
  const auto it = state.objects.find(url.path);
  return it == state.objects.end() ? failure(404, "NotFound", "not found")
                                   : json_response(200, it->second);
}

HttpResponse FakeKubeApi::write(const HttpRequest& request, const std::string& path) {
  if (state_->before_write != nullptr) {
    const std::function<void()> change = std::exchange(state_->before_write, nullptr);
    change();
  }
  if (request.method == "DELETE") {
    return remove_pinned(request, path);
  }
  if (request.url.find("fieldManager=imagefs-guard.io") == std::string::npos) {
    return failure(400, "BadRequest", "no fieldManager");
  }
  if (request.method == "PUT") {
    return update(request, path);
  }
  return request.method == "POST" ? create(request, path) : patch(request, path);
}

HttpResponse FakeKubeApi::update(const HttpRequest& request, const std::string& path) {
  const auto it = state_->objects.find(path);
  if (it == state_->objects.end()) {
    return failure(404, "NotFound", "not found");
  }
  Json object = Json::parse(request.body);
  if (object["metadata"]["resourceVersion"] != it->second["metadata"]["resourceVersion"]) {
    return failure(409, "Conflict", "the object has been modified");
  }
  object["metadata"]["uid"] = it->second["metadata"]["uid"];
  put(path, object.dump());
  return json_response(200, state_->objects[path]);
}

/// A delete with preconditions; grace is not modelled: the object is gone.
HttpResponse FakeKubeApi::remove_pinned(const HttpRequest& request, const std::string& path) {
  const auto it = state_->objects.find(path);
  if (it == state_->objects.end()) {
    return failure(404, "NotFound", "not found");
  }
  const Json pinned = Json::parse(request.body).value("preconditions", Json::object());
  for (const auto& [key, value] : pinned.items()) {
    if (it->second["metadata"][key] != value) {
      return failure(409, "Conflict", "the " + key + " in the precondition does not match");
    }
  }
  last_delete_ = request.body;
  remove(path);
  return json_response(200, Json{{"kind", "Status"}, {"status", "Success"}});
}

HttpResponse FakeKubeApi::create(const HttpRequest& request, const std::string& path) {
  Json object = Json::parse(request.body);
  const std::string full = path + "/" + object["metadata"]["name"].get<std::string>();
  if (state_->objects.contains(full)) {
    return failure(409, "AlreadyExists", "already exists");
  }
  put(full, request.body);
  return json_response(201, state_->objects[full]);
}

HttpResponse FakeKubeApi::patch(const HttpRequest& request, const std::string& path) {
  std::string object_path = path;
  if (object_path.ends_with("/status")) {
    object_path.resize(object_path.size() - 7);
  }
  const auto it = state_->objects.find(object_path);
  if (it == state_->objects.end()) {
    return failure(404, "NotFound", "not found");
  }
  const auto has_type = [&](const char* type) {
    return std::find(request.headers.begin(),
                     request.headers.end(),
                     "Content-Type: application/" + std::string(type)) != request.headers.end();
  };
  const Json body = Json::parse(request.body);
  Json object = it->second;
  if (has_type("json-patch+json")) {
    try {
      object = object.patch(body);
    } catch (const Json::exception& exception) {
      return failure(422, "Invalid", exception.what());
    }
  } else if (has_type("merge-patch+json")) {
    object.merge_patch(body);
  } else if (has_type("strategic-merge-patch+json")) {
    strategic_merge(object, body);
  } else {
    return failure(415, "UnsupportedMediaType", "no patch");
  }
  if (object["metadata"]["uid"] != it->second["metadata"]["uid"]) {
    return failure(409, "Conflict", "another uid");
  }
  put(object_path, object.dump());
  return json_response(200, state_->objects[object_path]);
}

HttpResponse FakeKubeApi::list(const Query& query, const std::string& path) {
  State& state = *state_;
  std::size_t first = 0;
  const std::string token = value_of(query, "continue");
  if (!token.empty()) {
    const std::size_t colon = token.find(':');
    if (std::stoull(token.substr(colon + 1)) < state.compacted) {
      return failure(410, "Expired", "The provided continue parameter is too old");
    }
    first = std::stoull(token.substr(0, colon));
  }
  const std::string seen = value_of(query, "resourceVersion");
  if (!seen.empty() && std::stoull(seen) > state.version) {
    return failure(504, "Timeout", "Too large resource version: " + seen);
  }
  Json items = Json::array();
  std::size_t index = 0;
  Json metadata = {{"resourceVersion", std::to_string(state.version)}};
  for (const auto& [object_path, object] : state.objects) {
    const bool listed = is_in_collection(object_path, path) &&
                        matches(object, value_of(query, "fieldSelector")) &&
                        labels_match(object, value_of(query, "labelSelector"));
    if (!listed || index++ < first) {
      continue;
    }
    if (items.size() == state.page_size) {
      metadata["continue"] =
          std::to_string(first + state.page_size) + ":" + std::to_string(state.version);
      break;
    }
    items.push_back(object);
  }
  return json_response(200, Json{{"kind", "List"}, {"metadata", metadata}, {"items", items}});
}

void FakeKubeApi::open_watch(std::uint64_t id, const Query& query) {
  const auto it = state_->pending.find(id);
  const Url url = parse_url(it->second.request.url);
  State::Watcher watcher{url.path,
                         value_of(query, "fieldSelector"),
                         std::move(it->second.request.on_data),
                         std::move(it->second.done)};
  state_->pending.erase(it);
  const std::uint64_t since = std::stoull("0" + value_of(query, "resourceVersion"));
  std::string backlog;
  for (const State::Event& event : state_->history) {
    if (event.version > since && event.collection == watcher.collection &&
        matches(event.line["object"], watcher.selector)) {
      backlog += event.line.dump() + "\n";
    }
  }
  const std::function<void(std::string_view)> on_data = watcher.on_data;
  state_->watchers[id] = std::move(watcher);
  if (!backlog.empty()) {
    on_data(backlog);
  }
}

void FakeKubeApi::publish(const std::string& type, const std::string& path) {
  State::Event event;
  event.version = state_->version;
  event.collection = collection_of(path);
  event.line = Json{{"type", type}, {"object", state_->objects[path]}};
  const std::string text = event.line.dump() + "\n";
  std::vector<std::function<void(std::string_view)>> receivers;
  for (const auto& [id, watcher] : state_->watchers) {
    if (watcher.collection == event.collection && matches(event.line["object"], watcher.selector)) {
      receivers.push_back(watcher.on_data);
    }
  }
  state_->history.push_back(std::move(event));
  for (const auto& on_data : receivers) {
    // In two pieces: chunks end anywhere.
    on_data(std::string_view(text).substr(0, text.size() / 2));
    on_data(std::string_view(text).substr(text.size() / 2));
  }
}

void FakeKubeApi::put(const std::string& path, const std::string& json) {
  const bool known = state_->objects.contains(path);
  Json object = Json::parse(json);
  Json& metadata = object["metadata"];
  if (!metadata.contains("name")) {
    metadata["name"] = path.substr(path.rfind('/') + 1);
  }
  if (!metadata.contains("uid")) {
    metadata["uid"] = "uid-" + metadata["name"].get<std::string>();
  }
  metadata["resourceVersion"] = std::to_string(++state_->version);
  state_->objects[path] = std::move(object);
  publish(known ? "MODIFIED" : "ADDED", path);
}

void FakeKubeApi::remove(const std::string& path) {
  const auto it = state_->objects.find(path);
  if (it == state_->objects.end()) {
    return;
  }
  it->second["metadata"]["resourceVersion"] = std::to_string(++state_->version);
  publish("DELETED", path);
  state_->objects.erase(path);
}

std::string FakeKubeApi::get(const std::string& path) const {
  const auto it = state_->objects.find(path);
  return it == state_->objects.end() ? std::string() : it->second.dump();
}

std::vector<std::string> FakeKubeApi::paths(const std::string& prefix) const {
  std::vector<std::string> found;
  for (const auto& [path, object] : state_->objects) {
    if (path.starts_with(prefix)) {
      found.push_back(path);
    }
  }
  return found;
}

void FakeKubeApi::fail_next(int times, int status, std::string retry_after) {
  state_->fail_times = times;
  state_->fail_status = status;
  state_->fail_retry_after = std::move(retry_after);
}

void FakeKubeApi::break_next(int times, ErrorKind kind) {
  state_->break_times = times;
  state_->break_kind = kind;
}

void FakeKubeApi::before_next_write(std::function<void()> change) {
  state_->before_write = std::move(change);
}

void FakeKubeApi::require_token(std::string token) {
  state_->token = std::move(token);
}

void FakeKubeApi::set_page_size(std::size_t page_size) {
  state_->page_size = page_size;
}

void FakeKubeApi::compact() {
  state_->history.clear();
  state_->compacted = ++state_->version;
}

void FakeKubeApi::end_watches(Result<void> how) {
  std::map<std::uint64_t, State::Watcher> watchers = std::exchange(state_->watchers, {});
  for (auto& [id, watcher] : watchers) {
    const HttpDone done = std::move(watcher.done);
    if (how) {
      HttpResponse response;
      response.status = 200;
      done(std::move(response));
    } else {
      done(how.error());
    }
  }
}

void FakeKubeApi::send_to_watches(std::string_view text) {
  std::vector<std::function<void(std::string_view)>> receivers;
  for (const auto& [id, watcher] : state_->watchers) {
    receivers.push_back(watcher.on_data);
  }
  for (const auto& on_data : receivers) {
    on_data(text);
  }
}

std::size_t FakeKubeApi::watch_count() const {
  return state_->watchers.size();
}

}  // namespace imagefs_guard
