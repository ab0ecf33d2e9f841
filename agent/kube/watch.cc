#include "agent/kube/watch.h"

#include <algorithm>
#include <utility>

namespace imagefs_guard {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

constexpr std::size_t kLineLimit = std::size_t{4} << 20;      // etcd refuses objects over 1.5 MiB
constexpr std::size_t kListBodyLimit = std::size_t{8} << 20;  // as parse_json(): 737 pods of 11 KiB
constexpr int kWatchPageSize = 500;
constexpr int kSmallPageSize = 50;  // once a page was over the limit
constexpr int kPageLimit = 64;
constexpr Duration kListTimeout = seconds(60);
// Bookmarks come about once a minute: silence for longer is a dead connection.
constexpr Duration kIdleTimeout = seconds(150);
constexpr std::uint64_t kWatchSeconds = 300;  // and up to as much again: nodes spread out
constexpr Duration kShortestWatch = seconds(1);
constexpr Duration kBackoffFirst = milliseconds(800);
constexpr Duration kBackoffLimit = seconds(30);
constexpr Duration kBackoffReset = minutes(2);
// A watch that begins says nothing until something happens; a list answers at once.
constexpr Duration kListAfter = minutes(1);

bool is_expired(const ApiStatus& status) {
  return status.code == 410 || status.reason == "Expired" || status.reason == "Gone";
}

/// The server's cache is behind what we have seen (etcd was restored, or a member lags).
bool is_version_ahead(const Error& error) {
  return error.message.find("Too large resource version") != std::string::npos;
}

}  // namespace

Watch::Watch(KubeApi& api, WatchSpec spec, WatchHandler& handler)
    : api_(api),
      spec_(std::move(spec)),
      handler_(handler),
      timer_(api.loop().make_timer("watch", [this] { on_timer(); })),
      lines_(kLineLimit),
      page_size_(kWatchPageSize),
      backoff_(kBackoffFirst) {}

void Watch::start() {
  run(Step::List);
}

void Watch::on_timer() {
  if (call_ == nullptr) {
    run(next_);
    return;
  }
  // An ended watch is closed from here, not from inside its own data callback.
  call_.reset();
  timer_->arm(wait_);
}

void Watch::run(Step step) {
  switch (step) {
    case Step::List:
      begin_list();
      return;
    case Step::Watch:
      begin_watch();
      return;
  }
}

void Watch::begin_list() {
  continue_token_.clear();
  pages_ = 0;
  handler_.list_begins();
  request_page();
}

void Watch::request_page() {
  KubeRequest request;
  request.verb = KubeVerb::List;
  request.resource = spec_.resource;
  request.path = spec_.path;
  request.query = "fieldSelector=" + percent_encode(spec_.field_selector) +
                  "&limit=" + std::to_string(page_size_);
  if (!continue_token_.empty()) {
    request.query += "&continue=" + percent_encode(continue_token_);
  } else {
    switch (list_from_) {
      case ListFrom::Cache:  // any: a quorum list would make etcd read the pods of every node
        request.query += "&resourceVersion=0";
        break;
      case ListFrom::NotOlderThanSeen:
        request.query += "&resourceVersion=" + percent_encode(resource_version_) +
                         "&resourceVersionMatch=NotOlderThan";
        break;
      case ListFrom::Quorum:
        break;
    }
  }
  request.total_timeout = kListTimeout;
  request.body_limit = kListBodyLimit;
  call_ = api_.start(std::move(request), [this](Result<std::string> body) {
    call_.reset();
    on_page(std::move(body));
  });
}

void Watch::on_page(Result<std::string> body) {
  if (!body) {
    list_failed(std::move(body).error());
    return;
  }
  Result<ListMetadata> page = handler_.list_page(*body);
  if (!page) {
    list_failed(with_context(std::move(page).error(), "list " + spec_.resource));
    return;
  }
  ++pages_;
  if (!page->continue_token.empty()) {
    if (pages_ >= kPageLimit) {
      list_failed(
          Error{ErrorKind::ResourceExhausted,
                "list " + spec_.resource + ": more than " + std::to_string(pages_) + " pages"});
      return;
    }
    continue_token_ = page->continue_token;
    request_page();
    return;
  }
  continue_token_.clear();
  resource_version_ = page->resource_version;
  list_from_ = resource_version_.empty() ? ListFrom::Cache : ListFrom::NotOlderThanSeen;
  synced_ = true;
  answered();
  handler_.list_ends();
  begin_watch();
}

void Watch::list_failed(Error error) {
  const bool refused = error.kind == ErrorKind::FailedPrecondition ||
                       error.kind == ErrorKind::InvalidArgument || is_version_ahead(error);
  if (refused) {
    list_from_ = ListFrom::Quorum;
  }
  if (error.kind == ErrorKind::ResourceExhausted) {
    list_from_ = ListFrom::Quorum;  // the cache answers without regard to the page size
    page_size_ = kSmallPageSize;
  }
  fail("list", std::move(error), Step::List);
}

void Watch::begin_watch() {
  lines_.reset();
  draining_ = false;
  got_line_ = false;
  watch_began_ = api_.loop().now();
  const std::uint64_t timeout = kWatchSeconds + api_.random_below(kWatchSeconds + 1);
  KubeRequest request;
  request.verb = KubeVerb::Watch;
  request.resource = spec_.resource;
  request.path = spec_.path;
  request.query =
      "fieldSelector=" + percent_encode(spec_.field_selector) +
      "&watch=1&allowWatchBookmarks=true&resourceVersion=" + percent_encode(resource_version_) +
      "&timeoutSeconds=" + std::to_string(timeout);
  request.total_timeout = seconds(timeout) + minutes(1);  // the server ends it, normally
  request.idle_timeout = kIdleTimeout;
  request.on_data = [this](std::string_view chunk) { on_chunk(chunk); };
  call_ = api_.start(std::move(request), [this](Result<std::string> end) {
    call_.reset();
    on_watch_end(std::move(end));
  });
}

void Watch::on_chunk(std::string_view chunk) {
  if (draining_) {
    return;
  }
  Result<void> fed = lines_.feed(chunk, [this](std::string_view line) { return on_line(line); });
  if (fed) {
    return;
  }
  const bool expired = fed.error().kind == ErrorKind::FailedPrecondition;
  fail(expired ? "expired" : "error",
       with_context(std::move(fed).error(), "watch " + spec_.resource),
       Step::List);
}

Result<void> Watch::on_line(std::string_view line) {
  WatchLine event = TRY(handler_.watch_line(line));
  if (event.type == WatchEventType::Error) {
    const ErrorKind kind =
        is_expired(event.status) ? ErrorKind::FailedPrecondition : ErrorKind::Unavailable;
    return Error{kind,
                 std::to_string(event.status.code) + " " + event.status.reason + ": " +
                     event.status.message};
  }
  if (!event.resource_version.empty()) {
    resource_version_ = std::move(event.resource_version);
  }
  got_line_ = true;
  answered();
  return {};
}

void Watch::on_watch_end(Result<std::string> end) {
  if (draining_) {
    timer_->arm(wait_);  // has failed already, and is closed now
    return;
  }
  if (!end) {
    Error error = std::move(end).error();
    if (error.kind == ErrorKind::FailedPrecondition || error.kind == ErrorKind::InvalidArgument) {
      fail("expired", std::move(error), Step::List);
      return;
    }
    const bool idle = error.kind == ErrorKind::DeadlineExceeded;
    fail(idle ? "idle" : "error", std::move(error), Step::Watch);
    return;
  }
  if (!got_line_ && api_.loop().now() - watch_began_ < kShortestWatch) {
    fail("error",
         Error{ErrorKind::Unavailable, "watch " + spec_.resource + ": closed at once"},
         Step::Watch);
    return;
  }
  ++restarts_["closed"];
  answered();
  begin_watch();
}

void Watch::fail(const char* reason, Error error, Step next) {
  const MonotonicTime now = api_.loop().now();
  ++restarts_[reason];
  error_ = std::move(error.message);
  if (!failing_since_.has_value()) {
    failing_since_ = now;
  }
  if (now - last_failure_ > kBackoffReset) {
    backoff_ = kBackoffFirst;
  }
  last_failure_ = now;
  next_ = now - *failing_since_ >= kListAfter ? Step::List : next;
  const auto span = static_cast<std::uint64_t>(backoff_.count());
  const auto jitter = static_cast<Duration::rep>(api_.random_below(span));
  wait_ = std::max(backoff_ + Duration(jitter), api_.pause_left());
  backoff_ = std::min(backoff_ * 2, kBackoffLimit);
  draining_ = true;
  timer_->arm(call_ == nullptr ? wait_ : Duration::zero());
}

void Watch::answered() {
  failing_since_.reset();
}

}  // namespace imagefs_guard
