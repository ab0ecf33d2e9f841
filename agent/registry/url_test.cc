#include "agent/registry/url.h"

#include <doctest/doctest.h>

namespace imagefs_guard::url_test {

TEST_CASE("url: parts, defaults and refusals") {
  CHECK(parse_url("https://Registry.Corp/v2/?a=b#c") ==
        Url{"https", "registry.corp", "443", "/v2/?a=b"});
  CHECK(parse_url("HTTP://127.0.0.1:5000") == Url{"http", "127.0.0.1", "5000", "/"});
  CHECK(parse_url("http://[::1]:5000/x") == Url{"http", "[::1]", "5000", "/x"});
  CHECK(parse_url("https://[::1]?q") == Url{"https", "[::1]", "443", "/?q"});
  for (const char* text : {"",
                           "ftp://a/",
                           "https://",
                           "https://user@a/",
                           "https://a:b/",
                           "https://a b/",
                           "https://a/\nX: y",
                           "https://::1/",
                           "https://a:/",
                           "https://a:123456/",
                           "//a/",
                           "https://a\\@b/"}) {
    CAPTURE(text);
    CHECK(!parse_url(text));
  }
  CHECK(to_string(*parse_url("https://a:443/x")) == "https://a/x");
  CHECK(host_and_port(*parse_url("http://a:443/x")) == "a:443");
}

TEST_CASE("url: where a redirect leads") {
  const Url base = *parse_url("https://a/v2/r/blobs/x?y=/z");
  CHECK(resolve_location(base, "https://b/c") == parse_url("https://b/c"));
  CHECK(resolve_location(base, "//b/c") == parse_url("https://b/c"));
  CHECK(resolve_location(base, "/c?u=http://d/") == parse_url("https://a/c?u=http://d/"));
  CHECK(resolve_location(base, "c") == parse_url("https://a/v2/r/blobs/c"));
  CHECK(!resolve_location(base, "file:///etc/passwd"));
  CHECK(!resolve_location(base, "https://u:p@b/"));
  CHECK(!resolve_location(base, ""));
  CHECK(!resolve_location(base, "#x"));
}

TEST_CASE("url: percent encoding") {
  CHECK(percent_encode("repository:a/b:pull x~") == "repository%3Aa%2Fb%3Apull%20x~");
  CHECK(percent_encode("\xc3\xa4") == "%C3%A4");
}

}  // namespace imagefs_guard::url_test
