#pragma once
/// A transport that counts the answers of another one by status code, for metrics. main.cc puts it
/// between the registry client and the real transport: logins, redirects and credentials count too.

#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "agent/io/http.h"

namespace imagefs_guard {

class HttpCounter final : public HttpTransport {
 public:
  /// `inner` outlives it, and it outlives its calls.
  explicit HttpCounter(HttpTransport& inner) : inner_(inner) {}

  [[nodiscard]] std::unique_ptr<HttpCall> start(HttpRequest request, HttpDone done) override {
    return inner_.start(std::move(request),
                        [this, done = std::move(done)](Result<HttpResponse> reply) {
                          ++counts_[reply ? reply->status : 0];
                          const HttpDone tell = done;  // it may destroy the call, and us with it
                          tell(std::move(reply));
                        });
  }

  /// By status code; 0 = no answer.
  [[nodiscard]] const std::map<int, std::uint64_t>& counts() const { return counts_; }

 private:
  HttpTransport& inner_;
  std::map<int, std::uint64_t> counts_;
};

}  // namespace imagefs_guard
