#pragma once
/// libcurl's multi interface on the event loop: sockets and the timer of curl_multi as sources of
/// sd_event. Used by http_curl.cc and grpc.cc, which only fill easy handles.
/// Transfers may be started and cancelled from anywhere, also from inside curl's own callbacks:
/// there curl forbids it, so it is done as soon as curl has returned.

#include <curl/curl.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "agent/core/result.h"

struct sd_event_source;

namespace imagefs_guard {

class CurlMulti;
class EventLoop;

/// One transfer. Made and kept by whoever wants its result, and by CurlMulti while it runs.
class CurlTransfer {
 public:
  explicit CurlTransfer(CURL* easy) : easy_(easy) {}

  CurlTransfer(const CurlTransfer&) = delete;
  CurlTransfer& operator=(const CurlTransfer&) = delete;
  virtual ~CurlTransfer();

  [[nodiscard]] CURL* easy() const { return easy_; }

  [[nodiscard]] bool cancelled() const { return cancelled_; }

  /// Ends the transfer; deliver() will not come. Never blocks.
  void cancel();

 protected:
  /// Takes the outcome from the easy handle, which is gone afterwards.
  virtual void collect(CURLcode code) = 0;
  /// Tells the owner. It may start, cancel and destroy transfers.
  virtual void deliver() = 0;
  /// Ends the transfer with this code as soon as curl has returned, unless curl has ended it.
  void finish(CURLcode code);

  /// curl does not wait for the transfer's socket: any more, or not yet. May come repeatedly.
  virtual void socket_left() {}

 private:
  friend class CurlMulti;

  CURL* easy_;
  CurlMulti* multi_ = nullptr;  // while it runs
  bool cancelled_ = false;
  bool watched_ = false;  // curl waits for its socket
};

class CurlMulti {
 public:
  struct Limits {
    long idle_connections = 1;      // kept open for reuse
    long connections_per_host = 0;  // 0 = no limit; more calls wait
    long connections_total = 0;
  };

  static Result<std::unique_ptr<CurlMulti>> create(EventLoop& loop, const Limits& limits);
  CurlMulti(const CurlMulti&) = delete;
  CurlMulti& operator=(const CurlMulti&) = delete;
  ~CurlMulti();

  /// The outcome comes through collect() and deliver(), from the loop, never from in here.
  void start(std::shared_ptr<CurlTransfer> transfer);

 private:
  friend class CurlTransfer;

  struct Finished {
    std::shared_ptr<CurlTransfer> transfer;
    CURLcode code = CURLE_OK;
  };

  CurlMulti(EventLoop& loop, CURLM* multi);

  static int on_socket(
      CURL* easy, curl_socket_t socket, int what, void* self, void* source) noexcept;
  static int on_timeout(CURLM*, long milliseconds, void* self) noexcept;
  static int on_io(sd_event_source*, int socket, std::uint32_t events, void* self) noexcept;
  static int on_timer(sd_event_source*, std::uint64_t microseconds, void* self) noexcept;
  static int on_wake(sd_event_source*, void* self) noexcept;

  int watch_socket(curl_socket_t socket, int what, sd_event_source* source);
  void arm_timer(long milliseconds);
  void act(curl_socket_t socket, int events);
  void settle();
  void add(std::shared_ptr<CurlTransfer> transfer);
  void remove(CURL* easy);
  void finish(CurlTransfer& transfer, CURLcode code);
  void wake();

  EventLoop& loop_;
  CURLM* multi_;
  sd_event_source* timer_ = nullptr;
  sd_event_source* wake_ = nullptr;
  bool inside_curl_ = false;
  std::map<CURL*, std::shared_ptr<CurlTransfer>> running_;
  std::vector<std::shared_ptr<CurlTransfer>> to_start_;   // asked for inside curl
  std::vector<std::shared_ptr<CurlTransfer>> to_remove_;  // cancelled inside curl
  std::vector<Finished> ended_;                           // by finish(), not by curl
};

/// An easy handle, or Internal where memory has run out.
[[nodiscard]] Result<CURL*> new_easy_handle();

/// What the operating system said when a connection failed, or curl's own words.
[[nodiscard]] std::string describe_curl_error(CURL* easy, CURLcode code, const char* error_buffer);

}  // namespace imagefs_guard
