#include "agent/wire/trace.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <optional>
#include <set>
#include <type_traits>
#include <utility>

#include "agent/core/action.h"
#include "agent/wire/json.h"
#include "agent/wire/trace_fields.h"

namespace imagefs_guard {

namespace {

using trace::EnumNames;
using trace::fields;

constexpr JsonLimits kLineLimits{.bytes = kTraceLineBytesMaximum, .depth = 32};
constexpr std::size_t kItemsMaximum = 100'000;
constexpr std::size_t kHexAlphabet = 64;

template <typename T>
struct IsOptional : std::false_type {};

template <typename T>
struct IsOptional<std::optional<T>> : std::true_type {};

template <typename T>
struct IsVector : std::false_type {};

template <typename T>
struct IsVector<std::vector<T>> : std::true_type {};

template <typename T>
struct IsMap : std::false_type {};

template <typename K, typename V>
struct IsMap<std::map<K, V>> : std::true_type {};

template <typename T>
struct IsDuration : std::false_type {};

template <typename R, typename P>
struct IsDuration<std::chrono::duration<R, P>> : std::true_type {};

template <typename T>
struct IsTime : std::false_type {};

template <typename C, typename D>
struct IsTime<std::chrono::time_point<C, D>> : std::true_type {};

template <typename E>
std::string_view name_of(E value) {
  const auto index = static_cast<std::size_t>(value);
  return index < std::size(EnumNames<E>::kNames) ? EnumNames<E>::kNames[index] : "?";
}

/// Digests without "sha256:"; none is an empty text.
std::string hex_of(const Digest& digest) {
  return digest.is_zero() ? std::string() : to_string(digest).substr(std::string("sha256:").size());
}

// ---- hashes ----------------------------------------------------------------------------------

/// FNV-1a by 64 bits: the same in every build, since it stands in traces.
class Hasher {
 public:
  void add(std::uint64_t value) {
    hash_ = (hash_ ^ value) * 0x100000001b3U;
    hash_ ^= hash_ >> 29U;
  }

  void add(std::string_view text) {
    add(text.size());
    for (const char c : text) {
      hash_ = (hash_ ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
    }
  }

  template <typename T>
  void value(const T& v) {
    if constexpr (std::is_same_v<T, std::string>) {
      add(std::string_view(v));
    } else if constexpr (std::is_same_v<T, Digest>) {
      add(std::string_view(reinterpret_cast<const char*>(v.bytes.data()), v.bytes.size()));
    } else if constexpr (std::is_enum_v<T> || std::is_integral_v<T>) {
      add(static_cast<std::uint64_t>(v));
    } else if constexpr (IsDuration<T>::value) {
      add(static_cast<std::uint64_t>(v.count()));
    } else if constexpr (IsTime<T>::value) {
      value(v.time_since_epoch());
    } else if constexpr (IsOptional<T>::value) {
      add(v.has_value() ? 1U : 0U);
      if (v.has_value()) {
        value(*v);
      }
    } else if constexpr (IsVector<T>::value) {
      add(v.size());
      for (const auto& element : v) {
        value(element);
      }
    } else if constexpr (IsMap<T>::value) {
      add(v.size());
      for (const auto& [key, element] : v) {
        value(key);
        value(element);
      }
    } else {
      fields(*this, v);
    }
  }

  template <typename T>
  void operator()(std::string_view, const T& v) {
    value(v);
  }

  [[nodiscard]] std::uint64_t hash() const { return hash_; }

 private:
  std::uint64_t hash_ = 0xcbf29ce484222325U;
};

template <typename T>
std::uint64_t hash_of(const T& value) {
  Hasher hasher;
  hasher.value(value);
  return hasher.hash();
}

/// The hash of each member, in their order.
class MemberHashes {
 public:
  template <typename T>
  void operator()(std::string_view, const T& v) {
    hashes.push_back(hash_of(v));
  }

  std::vector<std::uint64_t> hashes;
};

template <typename T>
const std::vector<std::uint64_t>& default_hashes() {
  static const std::vector<std::uint64_t> hashes = [] {
    MemberHashes members;
    const T value{};
    fields(members, value);
    return std::move(members.hashes);
  }();
  return hashes;
}

// ---- writing ---------------------------------------------------------------------------------

/// Whether each sequence has the bytes that its first one says.
bool is_utf8(std::string_view text) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    const std::size_t more = c < 0x80 ? 0 : c >= 0xf0 && c < 0xf5 ? 3 : c >= 0xe0 ? 2 : 1;
    if ((c >= 0x80 && c < 0xc2) || c >= 0xf5 || more > text.size() - 1 - i) {
      return false;
    }
    for (std::size_t k = 0; k < more; ++k) {
      if ((static_cast<unsigned char>(text[++i]) & 0xc0U) != 0x80U) {
        return false;
      }
    }
  }
  return true;
}

void write_text(std::string& out, std::string_view text) {
  // JSON has to be UTF-8; what an answer was cut to may not be.
  const bool plain = is_utf8(text);
  out += '"';
  for (const char c : text) {
    const auto code = static_cast<unsigned char>(c);
    if (!plain && code >= 0x80) {
      out += '?';
    } else if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (code < 0x20) {
      constexpr const char* kHex = "0123456789abcdef";
      out += "\\u00";
      out += kHex[code >> 4U];
      out += kHex[code & 15U];
    } else {
      out += c;
    }
  }
  out += '"';
}

template <typename T>
void write_value(std::string& out, const T& v);

/// Members that are not at their default; of a policy all, since its defaults may change.
template <typename T>
class MemberWriter {
 public:
  explicit MemberWriter(std::string& out) : out_(out) {}

  template <typename M>
  void operator()(std::string_view name, const M& v) {
    const bool is_default = hash_of(v) == default_hashes<T>()[at_++];
    if (is_default && !std::is_same_v<T, Policy>) {
      return;
    }
    out_ += first_ ? "" : ",";
    first_ = false;
    write_text(out_, name);
    out_ += ':';
    write_value(out_, v);
  }

 private:
  std::string& out_;
  std::size_t at_ = 0;
  bool first_ = true;
};

template <typename Map>
void write_map(std::string& out, const Map& map) {
  constexpr bool kByText = std::is_same_v<typename Map::key_type, std::string>;
  out += kByText ? '{' : '[';
  bool first = true;
  for (const auto& [key, value] : map) {
    out += first ? "" : ",";
    first = false;
    out += kByText ? "" : "[";
    write_value(out, key);
    out += kByText ? ":" : ",";
    write_value(out, value);
    out += kByText ? "" : "]";
  }
  out += kByText ? '}' : ']';
}

template <typename T>
void write_value(std::string& out, const T& v) {
  if constexpr (std::is_same_v<T, std::string>) {
    write_text(out, v);
  } else if constexpr (std::is_same_v<T, Digest>) {
    write_text(out, hex_of(v));
  } else if constexpr (std::is_same_v<T, bool>) {
    out += v ? "true" : "false";
  } else if constexpr (std::is_enum_v<T>) {
    write_text(out, name_of(v));
  } else if constexpr (std::is_integral_v<T>) {
    out += std::to_string(v);
  } else if constexpr (IsDuration<T>::value) {
    out += std::to_string(v.count());
  } else if constexpr (IsTime<T>::value) {
    write_value(out, v.time_since_epoch());
  } else if constexpr (IsOptional<T>::value) {
    if (v.has_value()) {
      write_value(out, *v);
    } else {
      out += "null";
    }
  } else if constexpr (IsVector<T>::value) {
    out += '[';
    bool first = true;
    for (const auto& element : v) {
      out += first ? "" : ",";
      first = false;
      write_value(out, element);
    }
    out += ']';
  } else if constexpr (IsMap<T>::value) {
    write_map(out, v);
  } else {
    out += '{';
    MemberWriter<T> writer(out);
    fields(writer, v);
    out += '}';
  }
}

// ---- reading ---------------------------------------------------------------------------------

}  // namespace

/// The first thing that could not be read.
struct ReadError {
  std::string where;

  bool fail(std::string_view name) {
    where = where.empty() ? std::string(name) : std::string(name) + "." + where;
    return false;
  }
};

namespace {

template <typename T>
bool read_value(JsonView view, T& v, ReadError& error);

class MemberReader {
 public:
  MemberReader(JsonView object, ReadError& error) : object_(object), error_(error) {}

  template <typename M>
  void operator()(std::string_view name, M& v) {
    const JsonView member = object_[name];
    if (ok_ && member && !read_value(member, v, error_)) {
      ok_ = error_.fail(name);
    }
  }

  [[nodiscard]] bool ok() const { return ok_; }

 private:
  JsonView object_;
  ReadError& error_;
  bool ok_ = true;
};

bool read_digest(JsonView view, Digest& digest) {
  if (view.is_string() && view.text().empty()) {
    digest = {};
    return true;
  }
  const auto parsed = view.text().size() == kHexAlphabet
                          ? parse_digest("sha256:" + std::string(view.text()))
                          : std::nullopt;
  digest = parsed.value_or(Digest{});
  return parsed.has_value();
}

template <typename E>
bool read_enum(JsonView view, E& value) {
  for (std::size_t i = 0; i < std::size(EnumNames<E>::kNames); ++i) {
    if (view.text() == EnumNames<E>::kNames[i]) {
      value = static_cast<E>(i);
      return true;
    }
  }
  return false;
}

template <typename T>
bool read_integer(JsonView view, T& value) {
  const auto number = view.integer();
  if (!number.has_value() || !std::in_range<T>(*number)) {
    return false;
  }
  value = static_cast<T>(*number);
  return true;
}

template <typename Map>
bool read_map(JsonView view, Map& map, ReadError& error) {
  using Key = typename Map::key_type;
  using Value = typename Map::mapped_type;
  map.clear();
  bool ok = true;
  if constexpr (std::is_same_v<Key, std::string>) {
    ok = view.is_object();
    view.for_each_member([&](std::string_view name, JsonView member) {
      Value value{};
      ok = ok && read_value(member, value, error);
      map.emplace(std::string(name), std::move(value));
    });
  } else {
    ok = view.is_array();
    for (std::size_t i = 0; ok && i < view.size(); ++i) {
      Key key{};
      Value value{};
      ok = read_value(view.at(i).at(0), key, error) && read_value(view.at(i).at(1), value, error);
      map.emplace(std::move(key), std::move(value));
    }
  }
  return ok;
}

template <typename T>
bool read_vector(JsonView view, std::vector<T>& list, ReadError& error) {
  list.clear();
  if (!view.is_array() || view.size() > kItemsMaximum) {
    return false;
  }
  for (std::size_t i = 0; i < view.size(); ++i) {
    T element{};
    if (!read_value(view.at(i), element, error)) {
      return error.fail("[" + std::to_string(i) + "]");
    }
    list.push_back(std::move(element));
  }
  return true;
}

template <typename T>
bool read_value(JsonView view, T& v, ReadError& error) {
  if constexpr (std::is_same_v<T, std::string>) {
    v = view.text();
    return view.is_string();
  } else if constexpr (std::is_same_v<T, Digest>) {
    return read_digest(view, v);
  } else if constexpr (std::is_same_v<T, bool>) {
    v = view.boolean().value_or(false);
    return view.boolean().has_value();
  } else if constexpr (std::is_enum_v<T>) {
    return read_enum(view, v);
  } else if constexpr (std::is_integral_v<T>) {
    return read_integer(view, v);
  } else if constexpr (IsDuration<T>::value) {
    typename T::rep count = 0;
    const bool ok = read_integer(view, count);
    v = T(count);
    return ok;
  } else if constexpr (IsTime<T>::value) {
    typename T::duration since{};
    const bool ok = read_value(view, since, error);
    v = T(since);
    return ok;
  } else if constexpr (IsOptional<T>::value) {
    v.reset();
    return view.is_null() || read_value(view, v.emplace(), error);
  } else if constexpr (IsVector<T>::value) {
    return read_vector(view, v, error);
  } else if constexpr (IsMap<T>::value) {
    return read_map(view, v, error);
  } else {
    v = T{};
    MemberReader reader(view, error);
    fields(reader, v);
    return view.is_object() && reader.ok();
  }
}

// ---- parts -----------------------------------------------------------------------------------

/// What a line may leave out, each part by itself; the same for both directions.
template <typename Visitor, typename Snapshot>
void snapshot_parts(Visitor& v, Snapshot& s) {
  v.whole("taken_at_us", s.taken_at);
  v.whole("wall_time_us", s.wall_time);
  v.whole("runtime_observed_at_us", s.runtime_observed_at);
  v.whole("kubelet", s.kubelet);
  v.whole("filesystems", s.filesystems);
  if (v.present("runtime", s.runtime)) {
    v.whole("runtime.version", s.runtime->version);
    v.list("runtime.images", s.runtime->images);
    v.list("runtime.blobs", s.runtime->blobs);
    v.list("runtime.snapshots", s.runtime->snapshots);
    v.list("runtime.extracts", s.runtime->extracts);
    v.list("runtime.ingests", s.runtime->ingests);
    v.list("runtime.leases", s.runtime->leases);
    v.list("runtime.used_chains", s.runtime->used_chains);
  }
  if (v.present("pods", s.pods)) {
    v.list("pods.items", *s.pods);
  }
  v.whole("node", s.node);
  v.list("resolved", s.resolved);
  v.list("manifests", s.manifests);
  v.whole("holds", s.holds);
  v.whole("rates", s.rates);
  v.whole("jobs", s.jobs);
  v.whole("rival_agent", s.rival_agent);
  v.whole("pod_checks", s.pod_checks);
  v.whole("running", s.running);
  v.whole("outcomes", s.outcomes);
  v.whole("probe_errors", s.probe_errors);
}

/// Ids and times of a map apart: the ids stay, and most times are the same.
struct UseTimes {
  std::vector<Digest> ids;
  std::vector<std::pair<std::int64_t, std::int64_t>> runs;  // how many, microseconds

  explicit UseTimes(const std::map<Digest, MonotonicTime>& used) {
    for (const auto& [id, time] : used) {
      ids.push_back(id);
      const std::int64_t at = time.time_since_epoch().count();
      if (runs.empty() || runs.back().second != at) {
        runs.emplace_back(0, at);
      }
      ++runs.back().first;
    }
  }
};

template <typename Visitor, typename M>
void memory_parts(Visitor& v, M& m) {
  v.whole("stage", m.stage);
  v.whole("pulls", m.pulls);
  v.whole("backoff", m.backoff);
  v.whole("published", m.published);
  v.whole("drain_steps", m.drain_steps);
  v.use_times("image_used_at", m.image_used_at);
  v.whole("reclaimed_at_us", m.reclaimed_at);
  v.whole("blind_since_us", m.blind_since);
  v.whole("audit", m.audit);
}

void write_action(std::string& out, const Action& action) {
  out += "{\"do\":";
  write_text(out, describe(action));
  out += ",\"key\":";
  write_text(out, action_key(action));
  if (const auto* cancel = std::get_if<CancelPull>(&action)) {
    out += ",\"lease_ids\":";
    write_value(out, cancel->lease_ids);
  } else if (const auto* taint = std::get_if<SetTaint>(&action)) {
    out += ",\"effect\":";
    write_value(out, taint->effect);
  } else if (const auto* metadata = std::get_if<SetNodeMetadata>(&action)) {
    out += ",\"labels\":";
    write_value(out, metadata->labels);
  }
  out += '}';
}

}  // namespace

/// Writes the parts that have changed.
class TraceEncoder::Parts {
 public:
  Parts(TraceEncoder& encoder, std::string prefix, std::string& out)
      : encoder_(encoder), prefix_(std::move(prefix)), out_(out) {}

  template <typename T>
  void whole(const char* name, const T& value) {
    const std::uint64_t hash = hash_of(value);
    const auto [known, is_new] = encoder_.wholes_.try_emplace(prefix_ + name, hash);
    if (!is_new && known->second == hash) {
      return;
    }
    known->second = hash;
    begin(name);
    write_value(out_, value);
  }

  template <typename T>
  bool present(const char* name, const std::optional<T>& value) {
    if (!value.has_value()) {
      forget(prefix_ + name + ".");
    }
    whole(name, value.has_value());
    return value.has_value();
  }

  template <typename T>
  void list(const char* name, const std::vector<T>& list) {
    std::vector<std::uint64_t> hashes;
    hashes.reserve(list.size());
    for (const T& element : list) {
      hashes.push_back(hash_of(element));
    }
    const auto [known, is_new] = encoder_.lists_.try_emplace(prefix_ + name);
    std::vector<std::uint64_t>& before = known->second;
    if (!is_new && before == hashes) {
      return;
    }
    std::size_t head = 0;
    while (head < before.size() && head < hashes.size() && before[head] == hashes[head]) {
      ++head;
    }
    std::size_t tail = 0;
    while (tail < before.size() - head && tail < hashes.size() - head &&
           before[before.size() - 1 - tail] == hashes[hashes.size() - 1 - tail]) {
      ++tail;
    }
    begin(name);
    out_ +=
        "{\"head\":" + std::to_string(head) + ",\"tail\":" + std::to_string(tail) + ",\"items\":[";
    for (std::size_t i = head; i < list.size() - tail; ++i) {
      out_ += i == head ? "" : ",";
      write_value(out_, list[i]);
    }
    out_ += "]}";
    before = std::move(hashes);
  }

  void use_times(const char* name, const std::map<Digest, MonotonicTime>& used) {
    const UseTimes times(used);
    list((std::string(name) + ".ids").c_str(), times.ids);
    begin((std::string(name) + ".runs_us").c_str());
    out_ += '[';
    for (std::size_t i = 0; i < times.runs.size(); ++i) {
      out_ += i == 0 ? "[" : ",[";
      out_ += std::to_string(times.runs[i].first) + "," + std::to_string(times.runs[i].second);
      out_ += ']';
    }
    out_ += ']';
  }

 private:
  void begin(const char* name) {
    out_ += first_ ? "" : ",";
    first_ = false;
    write_text(out_, name);
    out_ += ':';
  }

  void forget(const std::string& prefix) {
    const auto starts = [&](const auto& entry) { return entry.first.starts_with(prefix); };
    std::erase_if(encoder_.wholes_, starts);
    std::erase_if(encoder_.lists_, starts);
  }

  TraceEncoder& encoder_;
  std::string prefix_;
  std::string& out_;
  bool first_ = true;
};

void TraceEncoder::begin_file() {
  wholes_.clear();
  lists_.clear();
}

std::string TraceEncoder::encode(const TraceTick& tick) {
  std::string out =
      "{\"v\":" + std::to_string(kTraceVersion) + ",\"tick\":" + std::to_string(tick.number);
  const std::uint64_t policy = hash_of(tick.policy);
  const auto [known, is_new] = wholes_.try_emplace("policy", policy);
  if (is_new || known->second != policy) {
    known->second = policy;
    out += ",\"policy\":";
    write_value(out, tick.policy);
  }
  out += ",\"snapshot\":{";
  Parts snapshot(*this, "snapshot.", out);
  snapshot_parts(snapshot, tick.snapshot);
  out += "},\"memory\":{";
  Parts memory(*this, "memory.", out);
  memory_parts(memory, tick.memory);
  return out + "},\"decision\":" + encode_decision(tick.decision) + "}\n";
}

/// Reads the parts that are there.
class TraceDecoder::Parts {
 public:
  explicit Parts(JsonView object) {
    object.for_each_member([this](std::string_view name, JsonView view) {
      members_.emplace(std::string(name), view);
    });
  }

  template <typename T>
  void whole(const char* name, T& value) {
    const auto member = members_.find(name);
    if (member == members_.end()) {
      return;
    }
    if (!read_value(member->second, value, error_)) {
      fail(name);
    }
    members_.erase(member);
  }

  template <typename T>
  bool present(const char* name, std::optional<T>& value) {
    bool there = value.has_value();
    whole(name, there);
    if (!there) {
      value.reset();
    } else if (!value.has_value()) {
      value.emplace();
    }
    return there;
  }

  template <typename T>
  void list(const char* name, std::vector<T>& list) {
    const auto member = members_.find(name);
    if (member == members_.end()) {
      return;
    }
    std::vector<T> items;
    std::size_t head = 0;
    std::size_t tail = 0;
    const JsonView splice = member->second;
    const bool ok = read_integer(splice["head"], head) && read_integer(splice["tail"], tail) &&
                    head <= list.size() && tail <= list.size() - head &&
                    read_vector(splice["items"], items, error_);
    members_.erase(member);
    if (!ok || list.size() + items.size() > kItemsMaximum) {
      fail(name);
      return;
    }
    const auto begin = list.begin() + static_cast<std::ptrdiff_t>(head);
    const auto end = list.end() - static_cast<std::ptrdiff_t>(tail);
    const auto at = list.erase(begin, end);
    list.insert(at, std::make_move_iterator(items.begin()), std::make_move_iterator(items.end()));
  }

  void use_times(const char* name, std::map<Digest, MonotonicTime>& used) {
    std::vector<Digest> ids;
    for (const auto& [id, time] : used) {
      ids.push_back(id);
    }
    list((std::string(name) + ".ids").c_str(), ids);
    std::vector<std::vector<std::int64_t>> runs;
    whole((std::string(name) + ".runs_us").c_str(), runs);
    used.clear();
    std::size_t at = 0;
    for (const auto& run : runs) {
      for (std::int64_t i = 0; run.size() == 2 && i < run[0] && at < ids.size(); ++i) {
        used.emplace(ids[at++], MonotonicTime(Duration(run[1])));
      }
    }
    if (at != ids.size()) {
      fail(name);
    }
  }

  /// Also for a part that nobody knows.
  [[nodiscard]] std::string error() const {
    return failed_.empty() && !members_.empty() ? members_.begin()->first : failed_;
  }

 private:
  void fail(const char* name) {
    if (failed_.empty()) {
      failed_ = std::string(name) + (error_.where.empty() ? "" : "." + error_.where);
    }
  }

  std::map<std::string, JsonView> members_;
  ReadError error_;
  std::string failed_;
};

Result<const TraceLine*> TraceDecoder::decode(std::string_view line) {
  const auto document = parse_json(line, kLineLimits);
  if (!document) {
    return Error{document.error().kind,
                 "it is cut off or no trace (" + document.error().message + ")"};
  }
  const JsonView root = document->root();
  if (root["v"].integer() != kTraceVersion) {
    const std::string version = root["v"].scalar_text();
    return Error{ErrorKind::InvalidArgument,
                 version.empty() ? "it is no line of a trace"
                                 : "it has version " + version + ", this program reads version " +
                                       std::to_string(kTraceVersion)};
  }
  const JsonView policy = root["policy"];
  if (!begun_ && !policy) {
    return Error{ErrorKind::InvalidArgument, "it is not the beginning of a trace"};
  }
  begun_ = true;
  ReadError error;
  if (policy && !read_value(policy, line_.policy, error)) {
    return Error{ErrorKind::InvalidArgument, "policy." + error.where + " can't be read"};
  }
  Parts snapshot(root["snapshot"]);
  snapshot_parts(snapshot, line_.snapshot);
  Parts memory(root["memory"]);
  memory_parts(memory, line_.memory);
  for (const auto& [name, failed] :
       {std::pair("snapshot.", snapshot.error()), std::pair("memory.", memory.error())}) {
    if (!failed.empty()) {
      return Error{ErrorKind::InvalidArgument, name + failed + " can't be read"};
    }
  }
  const std::size_t decision = line.rfind(",\"decision\":{");
  if (!root["decision"].is_object() || !read_integer(root["tick"], line_.number) ||
      decision == std::string_view::npos) {
    return Error{ErrorKind::InvalidArgument, "its tick or decision can't be read"};
  }
  // The last member, as it was written.
  line_.decision = line.substr(decision + std::string_view(",\"decision\":").size());
  while (!line_.decision.empty() && line_.decision.back() == '\n') {
    line_.decision.pop_back();
  }
  line_.decision.pop_back();  // the line's own brace
  return &std::as_const(line_);
}

std::string encode_decision(const Decision& decision) {
  std::string out = "{\"node\":";
  write_value(out, decision.node);
  out += ",\"pulls\":";
  write_value(out, decision.pulls);
  out += ",\"drains\":";
  write_value(out, decision.drains);
  out += ",\"actions\":[";
  for (std::size_t i = 0; i < decision.actions.size(); ++i) {
    out += i == 0 ? "" : ",";
    write_action(out, decision.actions[i]);
  }
  std::array<char, 17> hex{};
  const auto end = std::to_chars(hex.data(), hex.data() + hex.size(), hash_of(decision.memory), 16);
  return out + "],\"memory\":\"" + std::string(hex.data(), end.ptr) + "\"}";
}

namespace {

std::string shown(JsonView view) {
  constexpr std::size_t kShownBytes = 300;
  std::string text = view.is_object() || view.is_array() ? view.type_name()
                     : view.is_null()                    ? "nothing"
                                                         : view.scalar_text();
  return text.size() > kShownBytes ? text.substr(0, kShownBytes) + "…" : text;
}

void compare(const std::string& path,
             JsonView recorded,
             JsonView decided,
             std::vector<std::string>& found) {
  if (recorded.is_object() && decided.is_object()) {
    std::set<std::string> names;
    const auto note = [&](std::string_view name, JsonView) { names.emplace(name); };
    recorded.for_each_member(note);
    decided.for_each_member(note);
    for (const std::string& name : names) {
      compare(path.empty() ? name : path + "." + name, recorded[name], decided[name], found);
    }
    return;
  }
  if (recorded.is_array() && decided.is_array()) {
    for (std::size_t i = 0; i < std::max(recorded.size(), decided.size()); ++i) {
      compare(path + "[" + std::to_string(i) + "]", recorded.at(i), decided.at(i), found);
    }
    return;
  }
  const bool both_plain =
      !recorded.is_object() && !recorded.is_array() && !decided.is_object() && !decided.is_array();
  if (both_plain && recorded.is_null() == decided.is_null() &&
      recorded.scalar_text() == decided.scalar_text()) {
    return;
  }
  // A whole action or pull: its words say more than "an object".
  const auto words = [](JsonView view) {
    for (const char* name : {"do", "sentence"}) {
      if (view.is_object() && view[name]) {
        return shown(view[name]);
      }
    }
    return shown(view);
  };
  found.push_back(path + ": " + words(recorded) + " → " + words(decided));
}

}  // namespace

std::vector<std::string> decision_differences(const std::string& recorded,
                                              const std::string& decided,
                                              std::size_t limit) {
  std::vector<std::string> found;
  const auto left = parse_json(recorded, kLineLimits);
  const auto right = parse_json(decided, kLineLimits);
  if (!left || !right) {
    return {"one of the two decisions can't be read"};
  }
  compare("", left->root(), right->root(), found);
  if (found.size() > limit) {
    const std::size_t more = found.size() - limit;
    found.resize(limit);
    found.push_back("and " + std::to_string(more) + " more");
  }
  return found;
}

std::uint64_t decision_shape(const NodeSnapshot& snapshot, const Decision& decision) {
  Hasher hasher;
  hasher.value(decision.node.stage);
  for (const PullReport& pull : decision.pulls) {
    hasher.value(pull.manifest_digest);
    hasher.value(pull.image);
    hasher.value(pull.state);
    hasher.value(pull.verdict);
    hasher.value(pull.held);
  }
  for (const Action& action : decision.actions) {
    hasher.value(action_key(action));
  }
  for (const Hold& hold : snapshot.holds) {
    hasher.value(hold.manifest_digest);
    hasher.value(hold.state);
  }
  for (const auto& [part, error] : snapshot.probe_errors) {
    hasher.value(part);
  }
  hasher.value(static_cast<std::uint64_t>(snapshot.outcomes.size()));
  return hasher.hash();
}

}  // namespace imagefs_guard
