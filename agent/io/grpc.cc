// untested: runtime/containerd_hold_test.cc drives it against a real containerd.
#include "agent/io/grpc.h"

#include <curl/curl.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>

#include "agent/io/curl_multi.h"
#include "agent/io/loop.h"
#include "agent/wire/grpc_frame.h"
#include "agent/wire/percent_encoding.h"

namespace imagefs_guard {

namespace {

// The longest reply that we ask for is images.v1 List: about 1 KiB per image.
constexpr std::size_t kMessageLimit = std::size_t{32} << 20;
constexpr std::size_t kStatusMessageLimit = 1024;
constexpr Duration kStatusDeadline = std::chrono::seconds(5);

ErrorKind kind_of_grpc_status(int status) {
  switch (status) {
    case 1:
      return ErrorKind::Cancelled;
    case 3:   // INVALID_ARGUMENT
    case 11:  // OUT_OF_RANGE
      return ErrorKind::InvalidArgument;
    case 4:
      return ErrorKind::DeadlineExceeded;
    case 5:
      return ErrorKind::NotFound;
    case 6:
      return ErrorKind::AlreadyExists;
    case 7:
      return ErrorKind::PermissionDenied;
    case 8:
      return ErrorKind::ResourceExhausted;
    case 9:
      return ErrorKind::FailedPrecondition;
    case 10:
      return ErrorKind::Aborted;
    case 12:
      return ErrorKind::Unimplemented;
    case 14:
      return ErrorKind::Unavailable;
    case 16:
      return ErrorKind::Unauthenticated;
    default:  // UNKNOWN, INTERNAL, DATA_LOSS and what may come
      return ErrorKind::Internal;
  }
}

enum class RequestSide { Closed, KeptOpen };

struct GrpcRequest {
  std::string path;
  std::string message;
  Duration deadline{};
  RequestSide request_side = RequestSide::Closed;
};

struct Endpoint {
  std::string socket_path;
  std::string containerd_namespace;
};

class GrpcTransfer final : public CurlTransfer {
 public:
  GrpcTransfer(CURL* easy,
               GrpcRequest request,
               GrpcMessageHandler on_message,
               std::function<void(Result<void>)> done)
      : CurlTransfer(easy),
        frame_(wire::encode_grpc_frame(request.message)),
        request_(std::move(request)),
        decoder_(kMessageLimit),
        on_message_(std::move(on_message)),
        done_(std::move(done)) {
    request_.message.clear();
  }

  ~GrpcTransfer() override { curl_slist_free_all(header_list_); }

  GrpcTransfer(const GrpcTransfer&) = delete;
  GrpcTransfer& operator=(const GrpcTransfer&) = delete;

  /// Called in place of `done` when the stream has ended and curl has swallowed its status.
  void on_status_lost(std::function<void()> callback) { on_status_lost_ = std::move(callback); }

  void prepare(const Endpoint& endpoint) {
    const std::string url = "http://localhost" + request_.path;
    set(CURLOPT_URL, url.c_str());
    set(CURLOPT_PROTOCOLS_STR, "http");
    set(CURLOPT_UNIX_SOCKET_PATH, endpoint.socket_path.c_str());
    set(CURLOPT_PROXY, "");
    set(CURLOPT_NOSIGNAL, 1L);
    set(CURLOPT_ERRORBUFFER, error_buffer_.data());
    set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_2_PRIOR_KNOWLEDGE));
    // Before 8.0 libcurl breaks the second call on such a connection; a unix connect is cheap.
    set(CURLOPT_FRESH_CONNECT, 1L);
    set(CURLOPT_FORBID_REUSE, 1L);
    set(CURLOPT_POST, 1L);
    if (request_.request_side == RequestSide::KeptOpen) {
      set(CURLOPT_READFUNCTION, on_read);
      set(CURLOPT_READDATA, this);
    } else {
      set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(frame_.size()));
      set(CURLOPT_POSTFIELDS, frame_.data());
    }
    add_header("Content-Type: application/grpc");
    add_header("TE: trailers");
    add_header("Expect:");
    add_header("Accept:");
    if (!endpoint.containerd_namespace.empty()) {
      add_header("containerd-namespace: " + endpoint.containerd_namespace);
    }
    if (request_.deadline > Duration{0}) {
      const auto limit = std::max<std::int64_t>(
          1, std::chrono::ceil<std::chrono::milliseconds>(request_.deadline).count());
      add_header("grpc-timeout: " + std::to_string(limit) + "m");
      set(CURLOPT_TIMEOUT_MS, static_cast<long>(limit));
    }
    set(CURLOPT_HTTPHEADER, header_list_);
    set(CURLOPT_HEADERFUNCTION, on_header);
    set(CURLOPT_HEADERDATA, this);
    set(CURLOPT_WRITEFUNCTION, on_body);
    set(CURLOPT_WRITEDATA, this);
  }

 protected:
  void collect(CURLcode code) override {
    result_ = outcome(code);
    status_lost_ = !decode_error_ && !grpc_status_ && code == CURLE_OK;
    if (!result_) {
      result_ = with_context(std::move(result_).error(), request_.path.substr(1));
    }
  }

  void deliver() override {
    if (status_lost_ && on_status_lost_) {
      on_status_lost_();
    } else {
      done_(std::move(result_));
    }
  }

  void socket_left() override {
    // With END_STREAM and RST_STREAM in one read, curl 7.88 drops the headers, stops to read and
    // waits for the paused upload for ever.
    if (request_.request_side == RequestSide::KeptOpen && frame_sent_ == frame_.size()) {
      finish(CURLE_OK);
    }
  }

 private:
  template <typename Value>
  void set(CURLoption option, Value value) {
    VERIFY(curl_easy_setopt(easy(), option, value) == CURLE_OK);
  }

  void add_header(const std::string& header) {
    curl_slist* list = curl_slist_append(header_list_, header.c_str());
    VERIFY(list != nullptr);
    header_list_ = list;
  }

  /// What the server said counts first: a stream that it ends early makes curl report an error.
  [[nodiscard]] Result<void> outcome(CURLcode code) const {
    if (decode_error_) {
      return *decode_error_;
    }
    if (grpc_status_ && *grpc_status_ != 0) {
      return Error{
          kind_of_grpc_status(*grpc_status_),
          grpc_message_.empty() ? "status " + std::to_string(*grpc_status_) : grpc_message_};
    }
    if (grpc_status_ && decoder_.at_frame_boundary()) {
      return {};
    }
    if (code == CURLE_OPERATION_TIMEDOUT) {
      return Error{ErrorKind::DeadlineExceeded, "no reply in time"};
    }
    if (code != CURLE_OK) {
      return Error{ErrorKind::Unavailable, describe_curl_error(easy(), code, error_buffer_.data())};
    }
    long http_status = 0;
    curl_easy_getinfo(easy(), CURLINFO_RESPONSE_CODE, &http_status);
    if (http_status != 200) {
      return Error{ErrorKind::Unavailable, "HTTP status " + std::to_string(http_status)};
    }
    return Error{ErrorKind::Internal, "the reply ends without a gRPC status"};
  }

  static std::size_t on_read(char* buffer, std::size_t, std::size_t room, void* self) noexcept {
    auto* transfer = static_cast<GrpcTransfer*>(self);
    const std::size_t left = transfer->frame_.size() - transfer->frame_sent_;
    if (left == 0) {
      return CURL_READFUNC_PAUSE;  // never the end: the server must keep the stream
    }
    const std::size_t taken = std::min(left, room);
    std::copy_n(transfer->frame_.data() + transfer->frame_sent_, taken, buffer);
    transfer->frame_sent_ += taken;
    return taken;
  }

  static std::size_t on_header(char* data, std::size_t, std::size_t bytes, void* self) noexcept {
    auto* transfer = static_cast<GrpcTransfer*>(self);
    if (transfer->cancelled()) {
      return 0;
    }
    transfer->take_header(std::string_view(data, bytes));
    return bytes;
  }

  void take_header(std::string_view line) {
    // Trailers come through here too, after the blank line.
    constexpr std::string_view kStatus = "grpc-status:";
    constexpr std::string_view kMessage = "grpc-message:";
    while (line.ends_with('\n') || line.ends_with('\r')) {
      line.remove_suffix(1);
    }
    const auto value_after = [&line](std::string_view name) {
      std::string_view value = line.substr(name.size());
      value.remove_prefix(std::min(value.find_first_not_of(' '), value.size()));
      return value;
    };
    if (line.starts_with(kMessage)) {
      grpc_message_ = percent_decode(value_after(kMessage).substr(0, kStatusMessageLimit));
    } else if (line.starts_with(kStatus)) {
      const std::string_view value = value_after(kStatus);
      int status = -1;
      const char* end = value.data() + value.size();
      const auto parsed = std::from_chars(value.data(), end, status);
      grpc_status_ = parsed.ec == std::errc{} && parsed.ptr == end && status >= 0 ? status : 13;
      if (request_.request_side == RequestSide::KeptOpen) {
        // curl would go on waiting for the paused upload.
        finish(CURLE_OK);
      }
    }
  }

  static std::size_t on_body(char* data, std::size_t, std::size_t bytes, void* self) noexcept {
    auto* transfer = static_cast<GrpcTransfer*>(self);
    if (transfer->cancelled() || !transfer->take_body(std::string_view(data, bytes))) {
      return bytes == 0 ? 1 : 0;
    }
    return bytes;
  }

  bool take_body(std::string_view data) {
    Result<void> fed = decoder_.feed(data, [this](std::string_view message) {
      on_message_(message);
      return !cancelled();
    });
    if (!fed) {
      decode_error_ = std::move(fed).error();
      return false;
    }
    return !cancelled();
  }

  std::string frame_;
  std::size_t frame_sent_ = 0;
  GrpcRequest request_;
  wire::GrpcFrameDecoder decoder_;
  GrpcMessageHandler on_message_;
  std::function<void(Result<void>)> done_;
  std::function<void()> on_status_lost_;
  bool status_lost_ = false;
  curl_slist* header_list_ = nullptr;
  std::array<char, CURL_ERROR_SIZE> error_buffer_{};
  std::optional<int> grpc_status_;
  std::string grpc_message_;
  std::optional<Error> decode_error_;
  Result<void> result_;
};

class CurlGrpcCall final : public GrpcCall {
 public:
  explicit CurlGrpcCall(std::shared_ptr<CurlTransfer> transfer) : transfer_(std::move(transfer)) {}

  CurlGrpcCall(const CurlGrpcCall&) = delete;
  CurlGrpcCall& operator=(const CurlGrpcCall&) = delete;

  ~CurlGrpcCall() override { transfer_->cancel(); }

 private:
  std::shared_ptr<CurlTransfer> transfer_;
};

/// A stream whose request side stays open, or the question after its lost status.
class OpenStream final : public GrpcCall {
 public:
  OpenStream() = default;
  OpenStream(const OpenStream&) = delete;
  OpenStream& operator=(const OpenStream&) = delete;

  ~OpenStream() override {
    if (current) {
      current->cancel();
    }
  }

  std::shared_ptr<CurlTransfer> current;
};

class CurlGrpcClient final : public GrpcClient {
 public:
  CurlGrpcClient(std::unique_ptr<CurlMulti> multi, Endpoint endpoint)
      : multi_(std::move(multi)), endpoint_(std::move(endpoint)) {}

  [[nodiscard]] std::unique_ptr<GrpcCall> unary(
      const std::string& method,
      std::string request,
      Duration deadline,
      std::function<void(Result<std::string>)> done) override {
    auto reply = std::make_shared<std::optional<std::string>>();
    return start(
        {.path = method, .message = std::move(request), .deadline = deadline},
        [reply](std::string_view message) { reply->emplace(message); },
        [reply, method, done = std::move(done)](Result<void> result) {
          if (!result) {
            done(std::move(result).error());
          } else if (!*reply) {
            done(Error{ErrorKind::Internal, method.substr(1) + ": no reply message"});
          } else {
            done(std::move(**reply));
          }
        });
  }

  [[nodiscard]] std::unique_ptr<GrpcCall> server_stream(
      const std::string& method,
      std::string request,
      Duration deadline,
      GrpcMessageHandler on_message,
      std::function<void(Result<void>)> done) override {
    return start({.path = method, .message = std::move(request), .deadline = deadline},
                 std::move(on_message),
                 std::move(done));
  }

  [[nodiscard]] std::unique_ptr<GrpcCall> open_stream(
      const std::string& method,
      std::string first_message,
      GrpcMessageHandler on_message,
      std::function<void(Result<void>)> done) override {
    auto stream = std::make_unique<OpenStream>();
    // The same message with the request side closed gets the status across.
    const GrpcRequest question{
        .path = method, .message = first_message, .deadline = kStatusDeadline};
    auto transfer = make({.path = method,
                          .message = std::move(first_message),
                          .deadline = {},
                          .request_side = RequestSide::KeptOpen},
                         std::move(on_message),
                         done);
    transfer->on_status_lost([this, raw = stream.get(), question, done] {
      raw->current = make(
          question,
          [](std::string_view) {},
          [done](Result<void> result) {
            done(result ? Error{ErrorKind::Unavailable, "the stream has ended"}
                        : std::move(result).error());
          });
      multi_->start(raw->current);
    });
    stream->current = transfer;
    multi_->start(std::move(transfer));
    return stream;
  }

 private:
  std::shared_ptr<GrpcTransfer> make(GrpcRequest request,
                                     GrpcMessageHandler on_message,
                                     std::function<void(Result<void>)> done) {
    const Result<CURL*> easy = new_easy_handle();
    VERIFY(easy);  // only without memory
    auto transfer = std::make_shared<GrpcTransfer>(
        *easy, std::move(request), std::move(on_message), std::move(done));
    transfer->prepare(endpoint_);
    return transfer;
  }

  std::unique_ptr<GrpcCall> start(GrpcRequest request,
                                  GrpcMessageHandler on_message,
                                  std::function<void(Result<void>)> done) {
    auto transfer = make(std::move(request), std::move(on_message), std::move(done));
    multi_->start(transfer);
    return std::make_unique<CurlGrpcCall>(std::move(transfer));
  }

  std::unique_ptr<CurlMulti> multi_;
  Endpoint endpoint_;
};

}  // namespace

Result<std::unique_ptr<GrpcClient>> make_grpc_client(EventLoop& loop,
                                                     std::string socket_path,
                                                     std::string containerd_namespace) {
  constexpr std::size_t kPathLimit = sizeof(sockaddr_un::sun_path) - 1;
  if (socket_path.empty() || socket_path.size() > kPathLimit) {
    return Error{ErrorKind::InvalidArgument,
                 "socket path \"" + socket_path + "\" must have 1 to " +
                     std::to_string(kPathLimit) + " characters"};
  }
  std::unique_ptr<CurlMulti> multi = TRY(CurlMulti::create(loop, {.idle_connections = 1}));
  return std::unique_ptr<GrpcClient>(std::make_unique<CurlGrpcClient>(
      std::move(multi),
      Endpoint{.socket_path = std::move(socket_path),
               .containerd_namespace = std::move(containerd_namespace)}));
}

}  // namespace imagefs_guard
