#pragma once
/// Servers that answer from a script, in place of the network. Keeps the promises of the real
/// transport that callers rely on: answers come from the loop, replies over the limit are refused,
/// PublicOnly refuses inside addresses, silence ends at the timeout, a destroyed call stays silent.

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "agent/io/http.h"
#include "agent/io/loop.h"

namespace imagefs_guard {

class FakeHttp final : public HttpTransport {
 public:
  /// nullopt = never answers: the call ends at its timeout.
  using Handler = std::function<std::optional<Result<HttpResponse>>(const HttpRequest&)>;

  explicit FakeHttp(EventLoop& loop) : loop_(loop) {}

  /// The longest prefix of "METHOD URL" that fits gets the request; none fits: Unavailable.
  void on(const std::string& method_and_url, Handler handler) {
    routes_[method_and_url] = std::move(handler);
  }

  /// The same answer each time.
  void reply(const std::string& method_and_url, HttpResponse response) {
    on(method_and_url, [response](const HttpRequest&) { return response; });
  }

  /// One answer after the other; the last one stays.
  void replies(const std::string& method_and_url, std::vector<HttpResponse> responses) {
    auto queue = std::make_shared<std::deque<HttpResponse>>(responses.begin(), responses.end());
    on(method_and_url, [queue](const HttpRequest&) {
      HttpResponse response = queue->front();
      if (queue->size() > 1) {
        queue->pop_front();
      }
      return response;
    });
  }

  void hang(const std::string& method_and_url) {
    on(method_and_url,
       [](const HttpRequest&) -> std::optional<Result<HttpResponse>> { return std::nullopt; });
  }

  /// A name that resolves to an address inside the network.
  void resolve_inside(const std::string& host) { inside_.insert(host); }

  [[nodiscard]] std::unique_ptr<HttpCall> start(HttpRequest request, HttpDone done) override {
    requests.push_back(request);
    auto call = std::make_unique<Call>();
    const std::weak_ptr<char> alive = call->alive;
    auto answer = [alive, done = std::move(done)](Result<HttpResponse> result) {
      if (!alive.expired()) {
        const HttpDone callback = done;  // it may destroy the call, and this with it
        callback(std::move(result));
      }
    };
    std::optional<Result<HttpResponse>> result = answer_for(request);
    if (!result) {
      call->timer = loop_.make_timer("fake http timeout", [answer] {
        answer(Error{ErrorKind::DeadlineExceeded, "timed out"});
      });
      call->timer->arm(request.total_timeout);
      return call;
    }
    loop_.defer([answer, result = *std::move(result)] { answer(result); });
    return call;
  }

  /// How many requests went to "METHOD URL…".
  [[nodiscard]] int count(const std::string& method_and_url) const {
    int number = 0;
    for (const HttpRequest& request : requests) {
      number += (request.method + " " + request.url).starts_with(method_and_url) ? 1 : 0;
    }
    return number;
  }

  std::vector<HttpRequest> requests;  // all of them, in order

 private:
  struct Call final : HttpCall {
    std::shared_ptr<char> alive = std::make_shared<char>();
    std::unique_ptr<Timer> timer;
  };

  std::optional<Result<HttpResponse>> answer_for(const HttpRequest& request) {
    if (request.addresses == AddressPolicy::PublicOnly && is_inside(host_of(request.url))) {
      return Error{ErrorKind::PermissionDenied,
                   "address " + host_of(request.url) + " is not public"};
    }
    const std::string line = request.method + " " + request.url;
    const Handler* best = nullptr;
    std::size_t best_size = 0;
    for (const auto& [prefix, handler] : routes_) {
      if (line.starts_with(prefix) && prefix.size() >= best_size) {
        best = &handler;
        best_size = prefix.size();
      }
    }
    if (best == nullptr) {
      return Error{ErrorKind::Unavailable, "no such server: " + line};
    }
    std::optional<Result<HttpResponse>> result = (*best)(request);
    if (result && *result && (*result)->status / 100 == 2 &&
        (*result)->body.size() > request.body_limit) {
      return Error{ErrorKind::ResourceExhausted, "reply longer than the limit"};
    }
    return result;
  }

  static std::string host_of(const std::string& url) {
    const std::size_t begin = url.find("://") + 3;
    const std::size_t end = url.find_first_of("/?", begin);
    const std::string authority = url.substr(begin, end - begin);
    return authority.substr(
        0, authority.starts_with('[') ? authority.find(']') + 1 : authority.find(':'));
  }

  [[nodiscard]] bool is_inside(const std::string& host) const {
    for (const char* prefix : {"127.", "10.", "169.254.", "192.168.", "[", "0."}) {
      if (host.starts_with(prefix)) {
        return true;
      }
    }
    return host == "localhost" || inside_.contains(host);
  }

  EventLoop& loop_;
  std::map<std::string, Handler> routes_;
  std::set<std::string> inside_;
};

/// The value of a request's header, nullopt if it was not sent.
inline std::optional<std::string> sent_header(const HttpRequest& request, std::string_view name) {
  for (const std::string& header : request.headers) {
    if (header.size() > name.size() && header.starts_with(name) && header[name.size()] == ':') {
      return header.substr(header.find_first_not_of(' ', name.size() + 1));
    }
  }
  return std::nullopt;
}

}  // namespace imagefs_guard
