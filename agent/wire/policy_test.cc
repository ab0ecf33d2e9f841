#include "agent/wire/policy.h"

#include <doctest/doctest.h>

#include <string>

namespace imagefs_guard::policy_test {

TEST_CASE("policy: an empty file is the built-in policy") {
  for (const char* text : {"", "# nothing\n", "---\n", "{}", "ecr:\n", "ecr: {}"}) {
    CAPTURE(text);
    const auto policy = parse_policy(text);
    REQUIRE(policy);
    CHECK(*policy == default_policy());
  }
}

TEST_CASE("policy: every key") {
  const auto parsed = parse_policy(R"(
mode: observe
tickInterval: 15s
floorMargin: 1Gi
defaultFloor: 5Gi
guardMargin: 128Mi
clearMargin: 1G
clearAfter: 5m
manifestRetry: 1m
tagLifetime: 0s
drain: {enabled: true, resumeWithin: 5m}
legacyPrefect: {podWatch: 5m, action: deleteJob}
deadlines: {spawnerStart: 2m, deploymentProgress: 20m}
rates: {download: 50Mi, unpack: 60Mi}
taintKey: example.com/disk
protectedNamespaces: [kube-system, hub]
defaultProtectedLabels: false
protectedLabels:
  - {app: db, tier: "1"}
  - role: "*-nfs"
protectedPriority: 1000
plainHttpRegistries: ["127.0.0.1:5000"]
privateRegistries: [Registry.corp]
registryConfigFile: /etc/docker/config.json
blobAccess: false
kubeletConfigFile: /etc/kubernetes/kubelet.yaml
discardUnpackedLayers: false
snapshotter: stargz
ecr: {endpoint: "http://127.0.0.1:4000/", registryOverride: "http://127.0.0.1:5000"}
)");
  REQUIRE(parsed);
  const Policy& policy = *parsed;
  CHECK(policy.mode == Mode::Observe);
  CHECK(policy.tick_interval == std::chrono::seconds(15));
  CHECK(policy.floor_margin_bytes == std::int64_t{1} << 30);
  CHECK(policy.default_floor == ThresholdValue{std::int64_t{5} << 30, 0});
  CHECK(policy.guard_margin_bytes == std::int64_t{128} << 20);
  CHECK(policy.clear_margin_bytes == 1'000'000'000);
  CHECK(policy.clear_after == std::chrono::minutes(5));
  CHECK(policy.manifest_retry == std::chrono::minutes(1));
  CHECK(policy.tag_lifetime == Duration{});
  CHECK(policy.drain_enabled);
  CHECK(policy.drain_resume_within == std::chrono::minutes(5));
  CHECK(policy.legacy_prefect_pod_watch == std::chrono::minutes(5));
  CHECK(policy.legacy_prefect_action == LegacyPrefectAction::DeleteJob);
  CHECK(policy.spawner_start_timeout == std::chrono::minutes(2));
  CHECK(policy.deployment_progress == std::chrono::minutes(20));
  CHECK(policy.download_bytes_per_second == std::int64_t{50} << 20);
  CHECK(policy.unpack_bytes_per_second == std::int64_t{60} << 20);
  CHECK(policy.taint_key == "example.com/disk");
  CHECK(policy.protected_namespaces == std::vector<std::string>{"kube-system", "hub"});
  CHECK(policy.protected_labels ==
        std::vector<LabelMatch>{{{{"app", "db"}, {"tier", "1"}}}, {{{"role", "*-nfs"}}}});
  CHECK(policy.protected_priority == 1000);
  CHECK(policy.plain_http_registries == std::vector<std::string>{"127.0.0.1:5000"});
  CHECK(policy.private_registries == std::vector<std::string>{"registry.corp"});
  CHECK(policy.registry_config_file == "/etc/docker/config.json");
  CHECK(!policy.blob_access);
  CHECK(policy.kubelet_config_file == "/etc/kubernetes/kubelet.yaml");
  CHECK(!policy.discard_unpacked_layers);
  CHECK(policy.snapshotter == "stargz");
  CHECK(policy.ecr_endpoint == "http://127.0.0.1:4000");
  CHECK(policy.ecr_registry_override == "http://127.0.0.1:5000");
}

TEST_CASE("policy: protectedLabels adds to the built-in ones, in any order of keys") {
  const auto policy = parse_policy("protectedLabels: [{app: db}]\n");
  REQUIRE(policy);
  CHECK(policy->protected_labels.size() == default_protected_labels().size() + 1);
  CHECK(parse_policy("protectedLabels: [{app: db}]\ndefaultProtectedLabels: false\n")
            ->protected_labels.size() == 1);
}

TEST_CASE("policy: mistakes are one sentence with their line") {
  struct Case {
    const char* text;
    const char* message;
  };

  for (const Case& c : {
           Case{"mode: enforce\ntickIntervall: 10s\n",
                "line 2: \"tickIntervall\" is no key of the policy; did you mean "
                "\"tickInterval\"?"},
           Case{"floor_margin: 1Gi",
                "line 1: \"floor_margin\" is no key of the policy; did you mean \"floorMargin\"?"},
           Case{"colour: blue", "line 1: \"colour\" is no key of the policy"},
           Case{"ecr: {endpont: x}",
                "line 1: \"ecr.endpont\" is no key of the policy; did you mean \"ecr.endpoint\"?"},
           Case{"ecr: https://x", "line 1: ecr: expected a map, got a single value"},
           Case{"\n\nfloorMargin: 512MB\n",
                "line 3: floorMargin: \"512MB\" is no quantity; write one such as 512Mi or 2G"},
           Case{"floorMargin: 10%",
                "line 1: floorMargin: \"10%\" is a percentage; a quantity such as 512Mi is "
                "needed here"},
           Case{"floorMargin: -1Gi", "line 1: floorMargin: \"-1Gi\" is less than 0"},
           Case{"floorMargin: [1Gi]",
                "line 1: floorMargin: expected a quantity such as 512Mi, got a list"},
           Case{"floorMargin:",
                "line 1: floorMargin: expected a quantity such as 512Mi, got nothing"},
           Case{"defaultFloor: 120%",
                "line 1: defaultFloor: \"120%\" is no percentage between 0% and 100%"},
           Case{"clearAfter: 10",
                "line 1: clearAfter: \"10\" is no duration; write one such as 10s, 5m or 1h30m"},
           Case{"tickInterval: 10ms", "line 1: tickInterval: \"10ms\" is not between 1s and 5m"},
           Case{"mode: audit", "line 1: mode: \"audit\" is neither enforce nor observe"},
           Case{"blobAccess: yes", "line 1: blobAccess: \"yes\" is neither true nor false"},
           Case{"protectedPriority: 1e9",
                "line 1: protectedPriority: \"1e9\" is no whole number of 32 bits"},
           Case{"protectedNamespaces: hub",
                "line 1: protectedNamespaces: expected a list of namespaces, got a single value"},
           Case{"protectedLabels: [hub]",
                "line 1: protectedLabels: each entry is a map of labels, got a single value"},
           Case{"plainHttpRegistries: [\"http://127.0.0.1:5000\"]",
                "line 1: plainHttpRegistries: \"http://127.0.0.1:5000\" is no host or host:port "
                "(no scheme, path or wildcard)"},
           Case{"kubeletConfigFile: kubelet.yaml",
                "line 1: kubeletConfigFile: \"kubelet.yaml\" is no absolute path"},
           Case{"taintKey: \"a b\"",
                "line 1: taintKey: \"a b\" is no taint key such as example.com/disk"},
           Case{"ecr: {endpoint: localhost}",
                "line 1: ecr.endpoint: \"localhost\" is no URL such as https://host:port"},
           Case{"mode: observe\nmode: enforce", "line 2: \"mode\" is there twice"},
           Case{"- mode", "the policy is no map of keys, but a list"},
           Case{"guardMargin: 1Gi",
                "clearMargin (512Mi) is less than guardMargin (1Gi): the taint would come and go"},
       }) {
    CAPTURE(c.text);
    const auto policy = parse_policy(c.text);
    REQUIRE(!policy);
    CHECK(policy.error().message == c.message);
  }
  CHECK(parse_policy("mode: [").error().message.starts_with("line "));
  CHECK(parse_policy(std::string(300'000, '#')).error().kind == ErrorKind::ResourceExhausted);
}

TEST_CASE("policy keys: the documented defaults are the built-in ones") {
  Policy policy = default_policy();
  std::string text;
  std::string ecr = "ecr:\n";
  for (const PolicyKey& key : policy_keys()) {
    CHECK(!key.unit.empty());
    CHECK(key.effect.ends_with('.'));
    const std::string value = key.default_value.empty() ? "\"\"" : key.default_value;
    if (key.name.starts_with("ecr.")) {
      ecr += "  " + key.name.substr(4) + ": " + value + "\n";
    } else {
      text += key.name + ": " + value + "\n";
    }
  }
  const auto parsed = parse_policy(text + ecr);
  REQUIRE(parsed);
  CHECK(*parsed == policy);
}

}  // namespace imagefs_guard::policy_test
