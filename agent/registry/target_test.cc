#include "agent/registry/target.h"

#include <doctest/doctest.h>

namespace imagefs_guard::target_test {

namespace {

Policy policy() {
  Policy policy;
  policy.plain_http_registries = {"127.0.0.1:5000"};
  policy.private_registries = {"registry.corp"};
  return policy;
}

RegistryTarget target(const char* image) {
  return *make_target(*parse_image_reference(image), policy());
}

Url url(const char* text) {
  return *parse_url(text);
}

constexpr const char* kEcrImage = "123456789012.dkr.ecr.us-west-2.amazonaws.com/a";

}  // namespace

TEST_CASE("target: where an image is reached") {
  CHECK(to_string(target("nginx").base) == "https://registry-1.docker.io/");
  CHECK(target("nginx").image_name() == "docker.io/library/nginx");
  CHECK(to_string(target("127.0.0.1:5000/a").base) == "http://127.0.0.1:5000/");
  CHECK(to_string(target("127.0.0.1:5001/a").base) == "https://127.0.0.1:5001/");
  CHECK(target(kEcrImage).ecr.has_value());
  Policy overridden = policy();
  overridden.ecr_registry_override = "http://127.0.0.1:6000";
  const auto moved = make_target(*parse_image_reference(kEcrImage), overridden);
  CHECK(to_string(moved->base) == "http://127.0.0.1:6000/");
  CHECK(to_string(make_target(*parse_image_reference("nginx"), overridden)->base) ==
        "https://registry-1.docker.io/");
}

TEST_CASE("target: which addresses a URL may have") {
  struct Case {
    const char* image;
    const char* url;
    AddressPolicy want;
  };

  for (const Case& c : {
           Case{"nginx", "https://registry-1.docker.io/v2/", AddressPolicy::PublicOnly},
           Case{"evil.com/a", "https://evil.com/v2/", AddressPolicy::PublicOnly},
           Case{"evil.com/a", "https://registry.corp/v2/", AddressPolicy::Any},
           Case{"registry.corp/a", "https://registry.corp/v2/", AddressPolicy::Any},
           Case{"registry.corp/a", "https://registry.corp:8443/token", AddressPolicy::Any},
           Case{"registry.corp/a", "https://auth.corp/token", AddressPolicy::PublicOnly},
           Case{kEcrImage,
                "https://123456789012.dkr.ecr.us-west-2.amazonaws.com/v2/",
                AddressPolicy::Any},
           Case{kEcrImage,
                "https://prod-us-west-2-starport-layer-bucket.s3.us-west-2.amazonaws.com/x",
                AddressPolicy::Any},
           Case{kEcrImage,
                "https://bucket.s3.us-west-2.amazonaws.com.evil.com/x",
                AddressPolicy::PublicOnly},
           Case{kEcrImage, "https://internal-x.elb.amazonaws.com/x", AddressPolicy::PublicOnly},
           Case{"evil.com/a",
                "https://bucket.s3.us-west-2.amazonaws.com/x",
                AddressPolicy::PublicOnly},
       }) {
    CAPTURE(c.image);
    CAPTURE(c.url);
    CHECK(allowed_addresses(url(c.url), target(c.image), policy()) == c.want);
  }
}

TEST_CASE("target: where a redirect or a token realm may lead") {
  CHECK(may_follow(url("https://anywhere.com/"), target("nginx"), policy()));
  CHECK(!may_follow(url("http://registry-1.docker.io/"), target("nginx"), policy()));
  CHECK(!may_follow(url("http://169.254.169.254/"), target("evil.com/a"), policy()));
  CHECK(may_follow(url("http://127.0.0.1:5000/"), target("nginx"), policy()));
  CHECK(may_follow(url("http://127.0.0.1:5602/token"), target("127.0.0.1:5000/a"), policy()));
  CHECK(!may_follow(url("http://127.0.0.2:5602/token"), target("127.0.0.1:5000/a"), policy()));
}

}  // namespace imagefs_guard::target_test
