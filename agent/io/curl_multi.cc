// untested: http_curl_test.cc and the tests on a real containerd drive it.
#include "agent/io/curl_multi.h"

#include <sys/epoll.h>
#include <systemd/sd-event.h>

#include <cstring>
#include <utility>

#include "agent/io/loop.h"

namespace imagefs_guard {

namespace {

// curl's timers are the start of every transfer: at sd_event's default accuracy of 250 ms each
// request would begin a quarter of a second late.
constexpr std::uint64_t kCurlTimerAccuracyMicroseconds = 1;

int prepare_source(sd_event_source* source, const char* description) {
  int done = sd_event_source_set_description(source, description);
  if (done >= 0) {
    done = sd_event_source_set_exit_on_failure(source, 1);
  }
  return done;
}

std::uint32_t epoll_events(int what) {
  switch (what) {
    case CURL_POLL_IN:
      return EPOLLIN;
    case CURL_POLL_OUT:
      return EPOLLOUT;
    case CURL_POLL_INOUT:
      return EPOLLIN | EPOLLOUT;
    default:
      return 0;
  }
}

}  // namespace

CurlTransfer::~CurlTransfer() {
  // Still there only if it was never started.
  curl_easy_cleanup(easy_);
}

void CurlTransfer::cancel() {
  cancelled_ = true;
  if (multi_ == nullptr) {
    return;
  }
  CurlMulti& multi = *multi_;
  if (!multi.inside_curl_) {
    multi.remove(easy_);
    return;
  }
  multi.to_remove_.push_back(multi.running_.at(easy_));
  multi.wake();
}

void CurlTransfer::finish(CURLcode code) {
  if (multi_ != nullptr && !cancelled_) {
    multi_->finish(*this, code);
  }
}

Result<std::unique_ptr<CurlMulti>> CurlMulti::create(EventLoop& loop, const Limits& limits) {
  static const CURLcode global = curl_global_init(CURL_GLOBAL_DEFAULT);
  CURLM* handle = global == CURLE_OK ? curl_multi_init() : nullptr;
  if (handle == nullptr) {
    return Error{ErrorKind::Internal, "libcurl does not start"};
  }
  curl_multi_setopt(handle, CURLMOPT_MAXCONNECTS, limits.idle_connections);
  curl_multi_setopt(handle, CURLMOPT_MAX_HOST_CONNECTIONS, limits.connections_per_host);
  curl_multi_setopt(handle, CURLMOPT_MAX_TOTAL_CONNECTIONS, limits.connections_total);
  return std::unique_ptr<CurlMulti>(new CurlMulti(loop, handle));
}

CurlMulti::CurlMulti(EventLoop& loop, CURLM* multi) : loop_(loop), multi_(multi) {
  sd_event* event = loop_.raw();
  VERIFY(sd_event_add_time(event,
                           &timer_,
                           CLOCK_MONOTONIC,
                           /* usec= */ 0,
                           kCurlTimerAccuracyMicroseconds,
                           on_timer,
                           this) >= 0);
  VERIFY(prepare_source(timer_, "curl timer") >= 0);
  VERIFY(sd_event_source_set_enabled(timer_, SD_EVENT_OFF) >= 0);
  VERIFY(sd_event_add_defer(event, &wake_, on_wake, this) >= 0);
  VERIFY(prepare_source(wake_, "curl wake-up") >= 0);
  VERIFY(sd_event_source_set_enabled(wake_, SD_EVENT_OFF) >= 0);
  VERIFY(curl_multi_setopt(multi_, CURLMOPT_SOCKETFUNCTION, on_socket) == CURLM_OK);
  VERIFY(curl_multi_setopt(multi_, CURLMOPT_SOCKETDATA, this) == CURLM_OK);
  VERIFY(curl_multi_setopt(multi_, CURLMOPT_TIMERFUNCTION, on_timeout) == CURLM_OK);
  VERIFY(curl_multi_setopt(multi_, CURLMOPT_TIMERDATA, this) == CURLM_OK);
}

CurlMulti::~CurlMulti() {
  while (!running_.empty()) {
    running_.begin()->second->cancelled_ = true;
    remove(running_.begin()->first);
  }
  for (const std::shared_ptr<CurlTransfer>& transfer : to_start_) {
    transfer->multi_ = nullptr;
  }
  inside_curl_ = true;
  curl_multi_cleanup(multi_);  // closes the idle connections through on_socket()
  sd_event_source_disable_unref(wake_);
  sd_event_source_disable_unref(timer_);
}

void CurlMulti::start(std::shared_ptr<CurlTransfer> transfer) {
  if (!inside_curl_) {
    add(std::move(transfer));
    return;
  }
  to_start_.push_back(std::move(transfer));
  wake();
}

void CurlMulti::add(std::shared_ptr<CurlTransfer> transfer) {
  if (transfer->cancelled_) {
    return;
  }
  CURL* easy = transfer->easy_;
  transfer->multi_ = this;
  running_.emplace(easy, transfer);
  inside_curl_ = true;
  const CURLMcode code = curl_multi_add_handle(multi_, easy);
  inside_curl_ = false;
  if (code != CURLM_OK) {
    finish(*transfer, CURLE_FAILED_INIT);
  }
}

void CurlMulti::remove(CURL* easy) {
  const auto found = running_.find(easy);
  VERIFY(found != running_.end());
  const std::shared_ptr<CurlTransfer> transfer = std::move(found->second);
  running_.erase(found);
  const bool was_inside = std::exchange(inside_curl_, true);
  curl_multi_remove_handle(multi_, easy);
  curl_easy_cleanup(easy);
  inside_curl_ = was_inside;
  transfer->easy_ = nullptr;
  transfer->multi_ = nullptr;
}

void CurlMulti::finish(CurlTransfer& transfer, CURLcode code) {
  ended_.push_back({running_.at(transfer.easy_), code});
  wake();
}

void CurlMulti::wake() {
  VERIFY(sd_event_source_set_enabled(wake_, SD_EVENT_ONESHOT) >= 0);
}

int CurlMulti::on_wake(sd_event_source*, void* self) noexcept {
  static_cast<CurlMulti*>(self)->settle();
  return 0;
}

int CurlMulti::on_socket(
    CURL* easy, curl_socket_t socket, int what, void* self, void* source) noexcept {
  auto* multi = static_cast<CurlMulti*>(self);
  const int done = multi->watch_socket(socket, what, static_cast<sd_event_source*>(source));
  VERIFY(done >= 0);
  const auto running = multi->running_.find(easy);
  if (running != multi->running_.end()) {
    running->second->watched_ = what != CURL_POLL_REMOVE;
  }
  // Anything but 0 would abort all transfers.
  return 0;
}

int CurlMulti::watch_socket(curl_socket_t socket, int what, sd_event_source* source) {
  if (what == CURL_POLL_REMOVE) {
    sd_event_source_disable_unref(source);
    curl_multi_assign(multi_, socket, nullptr);
    return 0;
  }
  if (source != nullptr) {
    return sd_event_source_set_io_events(source, epoll_events(what));
  }
  int done = sd_event_add_io(loop_.raw(), &source, socket, epoll_events(what), on_io, this);
  if (done >= 0) {
    done = prepare_source(source, "curl socket");
  }
  if (done >= 0) {
    VERIFY(curl_multi_assign(multi_, socket, source) == CURLM_OK);
  }
  return done;
}

int CurlMulti::on_timeout(CURLM*, long milliseconds, void* self) noexcept {
  static_cast<CurlMulti*>(self)->arm_timer(milliseconds);
  return 0;
}

void CurlMulti::arm_timer(long milliseconds) {
  if (sd_event_get_state(loop_.raw()) == SD_EVENT_FINISHED) {
    return;  // calls that end with the process: nothing will fire any more
  }
  // 0 too goes through the loop: curl must not be called from in here.
  if (milliseconds < 0) {
    VERIFY(sd_event_source_set_enabled(timer_, SD_EVENT_OFF) >= 0);
    return;
  }
  const Duration due = loop_.now().time_since_epoch() + std::chrono::milliseconds(milliseconds);
  VERIFY(sd_event_source_set_time(timer_, static_cast<std::uint64_t>(due.count())) >= 0);
  VERIFY(sd_event_source_set_enabled(timer_, SD_EVENT_ONESHOT) >= 0);
}

int CurlMulti::on_io(sd_event_source*, int socket, std::uint32_t events, void* self) noexcept {
  int flags = 0;
  if ((events & EPOLLIN) != 0) {
    flags |= CURL_CSELECT_IN;
  }
  if ((events & EPOLLOUT) != 0) {
    flags |= CURL_CSELECT_OUT;
  }
  if ((events & (EPOLLERR | EPOLLHUP)) != 0) {
    flags |= CURL_CSELECT_ERR;
  }
  static_cast<CurlMulti*>(self)->act(socket, flags);
  return 0;
}

int CurlMulti::on_timer(sd_event_source*, std::uint64_t, void* self) noexcept {
  static_cast<CurlMulti*>(self)->act(CURL_SOCKET_TIMEOUT, 0);
  return 0;
}

void CurlMulti::act(curl_socket_t socket, int events) {
  int running = 0;
  inside_curl_ = true;
  const CURLMcode code = curl_multi_socket_action(multi_, socket, events, &running);
  inside_curl_ = false;
  VERIFY(code == CURLM_OK);
  // Not in on_socket(): a reply that comes while the request is still being sent ends the stream
  // before curl has ever asked for its socket.
  for (const auto& [easy, transfer] : running_) {
    if (!transfer->watched_) {
      transfer->socket_left();
    }
  }
  settle();
}

void CurlMulti::settle() {
  for (const std::shared_ptr<CurlTransfer>& transfer : std::exchange(to_remove_, {})) {
    if (transfer->multi_ != nullptr) {
      remove(transfer->easy_);
    }
  }
  for (std::shared_ptr<CurlTransfer>& transfer : std::exchange(to_start_, {})) {
    add(std::move(transfer));
  }
  std::vector<Finished> batch;
  int left = 0;
  while (const CURLMsg* message = curl_multi_info_read(multi_, &left)) {
    if (message->msg == CURLMSG_DONE) {
      batch.push_back({running_.at(message->easy_handle), message->data.result});
    }
  }
  // Behind curl's own: its code says more.
  batch.insert(batch.end(), ended_.begin(), ended_.end());
  ended_.clear();
  for (Finished& finished : batch) {
    CurlTransfer& transfer = *finished.transfer;
    if (transfer.multi_ == nullptr || transfer.cancelled_) {
      finished.transfer.reset();  // was cancelled meanwhile, or is in the batch twice
      continue;
    }
    transfer.collect(finished.code);
    remove(transfer.easy_);
  }
  for (const Finished& finished : batch) {
    if (finished.transfer && !finished.transfer->cancelled_) {
      finished.transfer->deliver();
    }
  }
}

Result<CURL*> new_easy_handle() {
  CURL* easy = curl_easy_init();
  if (easy == nullptr) {
    return Error{ErrorKind::Internal, "libcurl gives no handle"};
  }
  return easy;
}

std::string describe_curl_error(CURL* easy, CURLcode code, const char* error_buffer) {
  std::string text = *error_buffer != '\0' ? error_buffer : curl_easy_strerror(code);
  long os_errno = 0;
  if (code == CURLE_COULDNT_CONNECT &&
      curl_easy_getinfo(easy, CURLINFO_OS_ERRNO, &os_errno) == CURLE_OK && os_errno != 0) {
    text += ": ";
    text += std::strerror(static_cast<int>(os_errno));
  }
  return text;
}

}  // namespace imagefs_guard
