#include "agent/wire/cluster_json.h"

#include <functional>
#include <nlohmann/json.hpp>
#include <utility>

#include "agent/wire/json.h"
#include "agent/wire/json_text.h"
#include "agent/wire/kube_patch.h"
#include "agent/wire/lease_json.h"

namespace imagefs_guard {

namespace {

using Json = nlohmann::json;

constexpr std::string_view kOwnAnnotations = "imagefs-guard.io/";
constexpr std::string_view kLeasePrefix = "imagefs-guard.io-";
constexpr const char* kCondition = "ImageFilesystemRisk";
/// A page has at most 500 items; a server that ignores that is not followed for ever.
constexpr std::size_t kPageItemsMaximum = 20'000;

Result<ListMetadata> read_page(std::string_view json, const std::function<void(JsonView)>& visit) {
  const JsonDocument document = TRY(parse_kube_object(json));
  const JsonView root = document.root();
  const JsonView items = root["items"];
  if (!root["kind"].text().ends_with("List") || (items && !items.is_array()) ||
      items.size() > kPageItemsMaximum) {
    return Error{ErrorKind::InvalidArgument, "expected a list"};
  }
  for (std::size_t i = 0; i < items.size(); ++i) {
    visit(items.at(i));
  }
  return ListMetadata{.resource_version = std::string(root["metadata"]["resourceVersion"].text()),
                      .continue_token = std::string(root["metadata"]["continue"].text())};
}

/// Removes what is under our prefix, each with a test of what it was.
void remove_own(JsonView map, const char* name, Json& operations) {
  map.for_each_member([&](std::string_view key, JsonView value) {
    if (!key.starts_with(kOwnAnnotations)) {
      return;
    }
    const std::string path = json_pointer({"metadata", name, std::string(key)});
    operations.push_back(
        Json{{"op", "test"}, {"path", path}, {"value", std::string(value.text())}});
    operations.push_back(Json{{"op", "remove"}, {"path", path}});
  });
}

void remove_taints(const Json& taints, const std::string& taint_key, Json& operations) {
  Json removals = Json::array();
  for (std::size_t i = taints.size(); i > 0; --i) {
    const Json& taint = taints[i - 1];
    const auto key = taint.is_object() ? taint.find("key") : taint.end();
    if (key != taint.end() && *key == taint_key) {
      removals.push_back(Json{{"op", "remove"},
                              {"path", json_pointer({"spec", "taints", std::to_string(i - 1)})}});
    }
  }
  if (!removals.empty()) {
    operations.push_back(Json{{"op", "test"}, {"path", "/spec/taints"}, {"value", taints}});
    operations.insert(operations.end(), removals.begin(), removals.end());
  }
}

/// The raw list: fields of other writers' taints that we don't know must be in the test.
Json raw_taints(std::string_view node_json) {
  const Json node = Json::parse(node_json, nullptr, false);
  const Json::json_pointer path("/spec/taints");
  return node.is_object() && node.contains(path) && node[path].is_array() ? node[path]
                                                                          : Json::array();
}

}  // namespace

Result<ListMetadata> parse_marked_nodes(std::string_view json, std::vector<MarkedNode>& nodes) {
  return read_page(json, [&nodes](JsonView item) {
    const JsonView metadata = item["metadata"];
    if (!metadata["name"].text().empty()) {
      nodes.push_back({.name = std::string(metadata["name"].text()),
                       .uid = std::string(metadata["uid"].text())});
    }
  });
}

Result<ListMetadata> parse_agent_nodes(std::string_view json, std::vector<std::string>& nodes) {
  return read_page(json, [&nodes](JsonView item) {
    const std::string_view phase = item["status"]["phase"].text();
    const std::string_view node = item["spec"]["nodeName"].text();
    if (!node.empty() && phase != "Succeeded" && phase != "Failed") {
      nodes.emplace_back(node);
    }
  });
}

Result<ListMetadata> parse_agent_leases(std::string_view json, std::vector<AgentLease>& leases) {
  LeaseList list = TRY(parse_lease_list(json));
  for (Lease& lease : list.leases) {
    if (lease.name.starts_with(kLeasePrefix)) {
      leases.push_back({.node = lease.name.substr(kLeasePrefix.size()),
                        .renew_time = std::move(lease.renew_time)});
    }
  }
  return std::move(list.metadata);
}

Result<NodeCleaning> clean_node_patches(std::string_view node_json,
                                        const CleanNode& action,
                                        const std::string& taint_key) {
  const JsonDocument document = TRY(parse_kube_object(node_json));
  const JsonView metadata = document.root()["metadata"];
  if (metadata["uid"].text() != action.uid) {
    return Error{ErrorKind::FailedPrecondition, "another node has this name now: left alone"};
  }
  NodeCleaning cleaning;
  Json operations = Json::array();
  remove_taints(raw_taints(node_json), taint_key, operations);
  remove_own(metadata["labels"], "labels", operations);
  remove_own(metadata["annotations"], "annotations", operations);
  if (!operations.empty()) {
    Json patch =
        Json::array({Json{{"op", "test"}, {"path", "/metadata/uid"}, {"value", action.uid}}});
    patch.insert(patch.end(), operations.begin(), operations.end());
    cleaning.node_patch = compact_text(patch);
  }
  const JsonView conditions = document.root()["status"]["conditions"];
  for (std::size_t i = 0; i < conditions.size(); ++i) {
    if (conditions.at(i)["type"].text() == kCondition) {
      const Json removal = {{"$patch", "delete"}, {"type", kCondition}};
      Json status = Json::object();
      status["conditions"] = Json::array({removal});
      cleaning.status_patch =
          compact_text(Json{{"metadata", {{"uid", action.uid}}}, {"status", status}});
    }
  }
  return cleaning;
}

std::string agent_lease_name(const std::string& node) {
  return std::string(kLeasePrefix) + node;
}

}  // namespace imagefs_guard
