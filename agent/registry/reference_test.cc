#include "agent/registry/reference.h"

#include <doctest/doctest.h>

#include <string>

namespace imagefs_guard::reference_test {

namespace {

const std::string kHex(64, 'a');

}  // namespace

TEST_CASE("reference: normal forms") {
  struct Case {
    std::string text;
    const char* domain;
    const char* repository;
    const char* tag;
    bool digest;
  };

  for (const Case& c : {
           Case{"nginx", "docker.io", "library/nginx", "latest", false},
           Case{"nginx:1.27", "docker.io", "library/nginx", "1.27", false},
           Case{"prefecthq/prefect", "docker.io", "prefecthq/prefect", "latest", false},
           Case{"docker.io/nginx", "docker.io", "library/nginx", "latest", false},
           Case{"index.docker.io/library/nginx", "docker.io", "library/nginx", "latest", false},
           Case{"localhost:5000", "docker.io", "library/localhost", "5000", false},
           Case{"localhost/a", "localhost", "a", "latest", false},
           Case{"localhost:5000/a/b:t", "localhost:5000", "a/b", "t", false},
           Case{"127.0.0.1:5000/a", "127.0.0.1:5000", "a", "latest", false},
           Case{"[fd00::1]:5000/a", "[fd00::1]:5000", "a", "latest", false},
           Case{"Registry/a", "registry", "a", "latest", false},
           Case{"a/b/c", "docker.io", "a/b/c", "latest", false},
           Case{"quay.io/a__b/c-d--e.f_g:x", "quay.io", "a__b/c-d--e.f_g", "x", false},
           Case{"x@sha256:" + kHex, "docker.io", "library/x", "", true},
           Case{"quay.io/x:1@sha256:" + kHex, "quay.io", "x", "", true},
           Case{"123456789012.dkr.ecr.us-east-2.amazonaws.com/flows/etl:v1",
                "123456789012.dkr.ecr.us-east-2.amazonaws.com",
                "flows/etl",
                "v1",
                false},
       }) {
    CAPTURE(c.text);
    const auto reference = parse_image_reference(c.text);
    REQUIRE(reference);
    CHECK(reference->domain == c.domain);
    CHECK(reference->repository == c.repository);
    CHECK(reference->tag == c.tag);
    CHECK(reference->digest.has_value() == c.digest);
  }
}

TEST_CASE("reference: refused") {
  for (const std::string& text : {std::string(),
                                  std::string("nginx:"),
                                  std::string("nginx:-x"),
                                  std::string("Nginx"),
                                  std::string("docker.io/Library/x"),
                                  std::string("a//b"),
                                  std::string("/a"),
                                  std::string("a/"),
                                  std::string("a..b"),
                                  std::string("a___b"),
                                  std::string("-a"),
                                  std::string("a@sha256:1"),
                                  std::string("a@sha512:") + kHex,
                                  std::string("a@b@c"),
                                  "sha256:" + kHex,
                                  kHex,
                                  std::string("../../etc"),
                                  std::string("a b"),
                                  std::string("a?x=y"),
                                  std::string("host:port/a"),
                                  std::string("h_st.x/a"),
                                  std::string("[::1/a"),
                                  std::string("x:") + std::string(129, 'a'),
                                  "x/" + std::string(256, 'a'),
                                  std::string(2000, 'a'),
                                  std::string("a\nb"),
                                  std::string("quay.io/a%2fb")}) {
    CAPTURE(text);
    CHECK(parse_image_reference(text).error().kind == ErrorKind::InvalidArgument);
  }
}

TEST_CASE("reference: the runtime's names") {
  CHECK(canonical_image_name("nginx") == "docker.io/library/nginx:latest");
  CHECK(canonical_image_name("quay.io/x:1@sha256:" + kHex) == "quay.io/x@sha256:" + kHex);
  CHECK(canonical_image_name("sha256:" + kHex) == "sha256:" + kHex);
}

TEST_CASE("ecr hosts: the credential provider's pattern, nothing else") {
  CHECK(parse_ecr_host("123456789012.dkr.ecr.us-west-2.amazonaws.com") ==
        EcrHost{"123456789012", "us-west-2", "amazonaws.com", false, false});
  CHECK(parse_ecr_host("123456789012.dkr.ecr-fips.us-gov-west-1.amazonaws.com")->fips);
  CHECK(parse_ecr_host("123456789012.dkr-ecr.us-west-2.on.aws")->dual_stack);
  CHECK(parse_ecr_host("123456789012.dkr.ecr.cn-north-1.amazonaws.com.cn")->region == "cn-north-1");
  for (const char* host : {"12345678901.dkr.ecr.us-west-2.amazonaws.com",
                           "1234567890123.dkr.ecr.us-west-2.amazonaws.com",
                           "123456789012.dkr.ecr.us-west-2.amazonaws.com.evil.com",
                           "123456789012.dkr.ecr.us-west-2.evil.com",
                           "evil.com/123456789012.dkr.ecr.us-west-2.amazonaws.com",
                           "123456789012.dkr.ecr.us-west-2.amazonaws.com:443",
                           "123456789012.dkr.ecr.cn-north-1.amazonaws.com",
                           "123456789012.dkr.ecr..amazonaws.com",
                           "123456789012.dkr.ecr",
                           "123456789012.dkr.ecr.a.b.amazonaws.com",
                           "123456789012.dkrxecr.us-west-2.amazonaws.com",
                           "public.ecr.aws",
                           ""}) {
    CAPTURE(host);
    CHECK(!parse_ecr_host(host));
  }
}

TEST_CASE("ecr api: by region and partition") {
  struct Case {
    const char* host;
    const char* url;
  };

  for (const Case& c :
       {Case{"123456789012.dkr.ecr.us-west-2.amazonaws.com",
             "https://api.ecr.us-west-2.amazonaws.com"},
        Case{"123456789012.dkr.ecr.cn-north-1.amazonaws.com.cn",
             "https://api.ecr.cn-north-1.amazonaws.com.cn"},
        Case{"123456789012.dkr-ecr.us-west-2.on.aws", "https://ecr.us-west-2.api.aws"},
        Case{"123456789012.dkr.ecr-fips.us-gov-west-1.amazonaws.com",
             "https://api.ecr-fips.us-gov-west-1.amazonaws.com"},
        Case{"123456789012.dkr.ecr.eusc-de-east-1.amazonaws.eu",
             "https://api.ecr.eusc-de-east-1.amazonaws.eu"}}) {
    CAPTURE(c.host);
    CHECK(ecr_api_url(*parse_ecr_host(c.host)) == c.url);
  }
}

}  // namespace imagefs_guard::reference_test
