#include "agent/commands/flags.h"

#include <doctest/doctest.h>

#include <map>

namespace imagefs_guard {
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

TEST_CASE("help and version are text to print") {
  CHECK(parse({"--version"}).value().print == "imagefs-guard 0.1.0\n");
  CHECK(parse({"run", "--help"}).value().print->find("--policy") != std::string::npos);
}

}  // namespace
}  // namespace imagefs_guard
