#include "agent/commands/flags.h"

#include <doctest/doctest.h>

#include <map>

namespace imagefs_guard::flags_test {
namespace {

Result<CommandLine> parse(const std::vector<std::string>& arguments,
                          const std::map<std::string, std::string>& environment = {}) {
  return parse_command_line(arguments, [&](const char* name) {
    const auto found = environment.find(name);
    return found == environment.end() ? std::string() : found->second;
  });
}

TEST_CASE("a pod's environment is enough") {
  const auto line = parse({"run"},
                          {{"NODE_NAME", "node-a"},
                           {"HOST_IP", "10.99.0.1"},
                           {"KUBERNETES_SERVICE_HOST", "fd00::1"},
                           {"KUBERNETES_SERVICE_PORT", "443"}});
  REQUIRE(line.has_value());
  REQUIRE(line->run.has_value());
  CHECK(line->run->node_name == "node-a");
  CHECK(line->run->kubernetes_api == "https://[fd00::1]:443");
  CHECK(line->run->kubelet_url == "https://10.99.0.1:10250");
  CHECK(line->run->kubelet_ca_file == line->run->kubernetes_ca_file);
}

TEST_CASE("a mistake is one sentence") {
  struct Case {
    std::vector<std::string> arguments;
    std::string part;
  };

  const std::vector<std::string> good = {"--node", "n", "--kubernetes-api", "http://127.0.0.1:1"};
  const Case cases[] = {
      {{"run"}, "--node is missing"},
      {{"run", "--node", "n"}, "--kubernetes-api is missing"},
      {{"run", "--node", "n", "--kubernetes-api", "127.0.0.1"}, "no http or https URL"},
      {{"run", "--nod", "n"}, "--nod"},
      {{"jump"}, "jump"},
      {{"run", "--node", "n", "--kubernetes-api", "http://h", "--log-level", "loud"}, "not loud"},
      {{"run", "--node", "n", "--kubernetes-api", "http://h", "--log-format", "xml"}, "not xml"},
      {{"run", "--node", "n", "--kubernetes-api", "http://h", "--listen", "9808"}, "--listen"},
      {{}, "subcommand"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.part);
    const auto line = parse(c.arguments);
    REQUIRE(!line.has_value());
    CHECK(line.error().message.find(c.part) != std::string::npos);
    CHECK(line.error().message.find('\n') == std::string::npos);
  }
}

TEST_CASE("coordinator: its own flags") {
  const auto line = parse({"coordinator", "--kubernetes-api", "http://h/", "--namespace", "ns"});
  REQUIRE(line);
  CHECK_FALSE(line->run.has_value());
  REQUIRE(line->coordinator.has_value());
  CHECK(line->coordinator->kubernetes_api == "http://h");
  CHECK(line->coordinator->namespace_name == "ns");
  CHECK_FALSE(parse({"coordinator", "--node", "n", "--kubernetes-api", "http://h"}));
  CHECK_FALSE(parse({"coordinator", "--kubernetes-api", "h"}));
}

TEST_CASE("check: against a model, or this node") {
  const auto live = parse({"check", "a:1", "b:2"}, {{"HOST_IP", "10.99.0.1"}});
  REQUIRE(live);
  REQUIRE(live->check.has_value());
  CHECK(live->check->images == std::vector<std::string>{"a:1", "b:2"});
  CHECK_FALSE(live->check->volume.has_value());
  CHECK(live->check->kubernetes_api.empty());
  const auto pod = parse({"check", "a"},
                         {{"NODE_NAME", "node-a"},
                          {"KUBERNETES_SERVICE_HOST", "10.96.0.1"},
                          {"KUBERNETES_SERVICE_PORT", "443"}});
  REQUIRE(pod);
  CHECK(pod->check->node_name == "node-a");
  CHECK(pod->check->kubernetes_api == "https://10.96.0.1:443");
  CHECK(live->check->kubelet_url == "https://10.99.0.1:10250");

  const auto model = parse({"check",
                            "-o",
                            "json",
                            "-v",
                            "--capacity",
                            "50Gi",
                            "--available",
                            "31.5Gi",
                            "--floor",
                            "10%",
                            "--platform",
                            "linux/arm/v7",
                            "a"});
  REQUIRE(model);
  REQUIRE(model->check->volume.has_value());
  CHECK(model->check->json);
  CHECK(model->check->layers);
  CHECK(model->check->volume->capacity_bytes == std::int64_t{50} << 30);
  CHECK(model->check->volume->available_bytes == std::int64_t{63} << 29);
  CHECK(model->check->floor == ThresholdValue{.quantity = 0, .fraction_bits = 0x3dcccccd});
  CHECK(model->check->platform == Platform{.os = "linux", .architecture = "arm", .variant = "v7"});

  // A flag takes one host: what follows is an image.
  const auto hosts = parse({"check",
                            "--plain-http-registry",
                            "h:1",
                            "a",
                            "--private-registry",
                            "p",
                            "--plain-http-registry",
                            "h:2",
                            "b"});
  REQUIRE(hosts);
  CHECK(hosts->check->plain_http_registries == std::vector<std::string>{"h:1", "h:2"});
  CHECK(hosts->check->private_registries == std::vector<std::string>{"p"});
  CHECK(hosts->check->images == std::vector<std::string>{"a", "b"});

  const auto preset = parse({"check", "--node-type", "al2023:50", "--available", "5Gi", "a"});
  REQUIRE(preset);
  CHECK(preset->check->volume->available_bytes == std::int64_t{5} << 30);
  CHECK(preset->check->volume->assumption.empty());
  CHECK(is_check({"check"}));
  CHECK_FALSE(is_check({"run", "check"}));
  CHECK_FALSE(is_check({}));
}

TEST_CASE("check: a mistake is one sentence") {
  struct Case {
    std::vector<std::string> arguments;
    std::string part;
  };

  const Case cases[] = {
      {{}, "at least one IMAGE"},
      {{"a", "-o", "xml"}, "--output is table or json, not \"xml\""},
      {{"a", "--capacity", "50Gi"}, "--available is missing"},
      {{"a", "--available", "50Gi"}, "needs --capacity or --node-type"},
      {{"a", "--capacity", "lots", "--available", "1"}, "--capacity"},
      {{"a", "--capacity", "-5", "--available", "1"}, "--capacity"},
      {{"a", "--capacity", "0", "--available", "0"}, "more than 0"},
      {{"a", "--capacity", "9e30", "--available", "0"}, "--capacity"},
      {{"a", "--capacity", "1Gi", "--available", "2Gi"}, "more than the capacity"},
      {{"a", "--capacity", "1Gi", "--available", "1Xi"}, "--available"},
      {{"a", "--node-type", "windows"}, "no node type"},
      {{"a", "--node-type", "al2023", "--capacity", "1Gi"}, "--capacity can't be given"},
      {{"a", "--floor", "150%"}, "--floor"},
      {{"a", "--floor", "soon"}, "--floor"},
      {{"a", "--platform", "windows/amd64"}, "--platform"},
      {{"a", "--platform", "linux"}, "--platform"},
      {{"a", "--platform", "linux/a/b/c"}, "--platform"},
      {{"a", "--timeout", "0s"}, "--timeout"},
      {{"a", "--timeout", "fast"}, "--timeout"},
      {{"a", "--kubelet", "ftp://x"}, "ftp://x"},
      {{"a", "--no-such-flag"}, "--no-such-flag"},
      {std::vector<std::string>(101, "a"), "at most 100 images"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.part);
    std::vector<std::string> arguments = {"check"};
    arguments.insert(arguments.end(), c.arguments.begin(), c.arguments.end());
    const auto line = parse(arguments);
    REQUIRE(!line.has_value());
    CHECK(line.error().message.find(c.part) != std::string::npos);
    CHECK(line.error().message.find('\n') == std::string::npos);
  }
}

TEST_CASE("where to listen: a default, an address, or nowhere") {
  const std::vector<std::string> base = {"run", "--node", "n", "--kubernetes-api", "http://h"};

  struct Case {
    std::vector<std::string> arguments;
    const char* listen;
  };

  for (const auto& [arguments, listen] : {Case{{}, ":9808"},
                                          Case{{"--listen", "[::1]:0"}, "[::1]:0"},
                                          Case{{"--listen="}, ""},
                                          Case{{"--listen=", "--log-level=warn"}, ""},
                                          Case{{"--listen", "", "--log-level=warn"}, ""}}) {
    std::vector<std::string> all = base;
    all.insert(all.end(), arguments.begin(), arguments.end());
    const auto line = parse(all);
    REQUIRE(line);
    CHECK(line->run->listen == listen);
  }
}

TEST_CASE("status: whom to ask, and how to say it") {
  const auto plain = parse({"status"});
  REQUIRE(plain);
  CHECK(plain->status->address == "127.0.0.1:9808");
  CHECK_FALSE(plain->status->json);
  const auto other = parse({"status", "-o", "json", "--address", ":1234"});
  REQUIRE(other);
  CHECK(other->status->address == "127.0.0.1:1234");
  CHECK(other->status->json);
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"status", "-o", "xml"}, {"status", "--address", "host:80"}}) {
    const auto line = parse(arguments);
    REQUIRE(!line.has_value());
    CHECK(line.error().message.find('\n') == std::string::npos);
  }
}

TEST_CASE("replay and what it replays") {
  const auto line = parse({"replay", "trace.jsonl", "--policy", "p.yaml"});
  REQUIRE(line);
  CHECK(line->replay->trace_file == "trace.jsonl");
  CHECK(line->replay->policy_file == "p.yaml");
  CHECK(!parse({"replay"}).has_value());
  CHECK(is_replay({"replay", "x"}));

  const std::vector<std::string> run = {"run", "--node", "n", "--kubernetes-api", "http://h"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), run.begin(), run.end());
    return parse(more);
  };
  CHECK(with({})->run->record_path.empty());
  CHECK(with({"--record", "/traces"})->run->record_path == "/traces");
  CHECK(with({"--record-bytes", "8Mi"})->run->record_bytes == 8 << 20);
  CHECK(!with({"--record-bytes", "1Ki"}).has_value());
  CHECK(!with({"--record-bytes", "lots"}).has_value());
}

TEST_CASE("help and version are text to print") {
  CHECK(parse({"--version"}).value().print == "imagefs-guard 0.1.0\n");
  CHECK(parse({"run", "--help"}).value().print->find("--policy") != std::string::npos);
}

}  // namespace
}  // namespace imagefs_guard::flags_test
