#include "agent/io/proxy.h"

#include <doctest/doctest.h>

#include <map>

namespace imagefs_guard::proxy_test {

namespace {

Environment environment(std::map<std::string, std::string> values) {
  return [values = std::move(values)](const char* name) -> std::optional<std::string> {
    const auto found = values.find(name);
    return found != values.end() ? std::optional<std::string>(found->second) : std::nullopt;
  };
}

}  // namespace

TEST_CASE("the scheme picks the variable") {
  const Environment both = environment({{"http_proxy", "http://a:1"}, {"HTTPS_PROXY", "b:2"}});
  CHECK(proxy_for("http", "x.example", both) == "http://a:1");
  CHECK(proxy_for("https", "x.example", both) == "b:2");
  CHECK(proxy_for("http", "x.example", environment({{"HTTP_PROXY", "c:3"}})) == std::nullopt);
  CHECK(proxy_for("http", "x.example", environment({{"ALL_PROXY", "c:3"}})) == "c:3");
  CHECK(proxy_for("https", "x.example", environment({{"https_proxy", ""}})) == std::nullopt);
}

TEST_CASE("exceptions match whole labels") {
  const Environment env =
      environment({{"https_proxy", "p:1"}, {"no_proxy", "localhost, .svc,Example.COM,10.0.0.1"}});
  for (const char* direct : {"localhost",
                             "a.svc",
                             "svc",
                             "example.com",
                             "EXAMPLE.com.",
                             "a.b.example.com",
                             "10.0.0.1"}) {
    CAPTURE(direct);
    CHECK(proxy_for("https", direct, env) == std::nullopt);
  }
  for (const char* proxied : {"notexample.com", "example.com.evil", "10.0.0.10", "mysvc"}) {
    CAPTURE(proxied);
    CHECK(proxy_for("https", proxied, env) == "p:1");
  }
  CHECK(proxy_for("https", "x", environment({{"https_proxy", "p:1"}, {"NO_PROXY", "*"}})) ==
        std::nullopt);
}

}  // namespace imagefs_guard::proxy_test
