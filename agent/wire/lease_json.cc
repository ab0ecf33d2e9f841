#include "agent/wire/lease_json.h"

#include <nlohmann/json.hpp>

#include "agent/wire/json.h"
#include "agent/wire/time_text.h"

namespace imagefs_guard {

namespace {

using Json = nlohmann::json;

/// One per node of the largest clusters, and a few.
constexpr std::size_t kLeasesMaximum = 20'000;

Result<Lease> to_lease(JsonView object) {
  const JsonView metadata = object["metadata"];
  const JsonView spec = object["spec"];
  if (metadata["name"].text().empty()) {
    return Error{ErrorKind::InvalidArgument, "a Lease without metadata.name"};
  }
  return Lease{.name = std::string(metadata["name"].text()),
               .resource_version = std::string(metadata["resourceVersion"].text()),
               .holder = std::string(spec["holderIdentity"].text()),
               .renew_time = std::string(spec["renewTime"].text()),
               .acquire_time = std::string(spec["acquireTime"].text()),
               .transitions = spec["leaseTransitions"].integer().value_or(0)};
}

}  // namespace

Result<Lease> parse_lease(std::string_view json) {
  const JsonDocument document = TRY(parse_kube_object(json));
  return to_lease(document.root());
}

Result<LeaseList> parse_lease_list(std::string_view json) {
  const JsonDocument document = TRY(parse_kube_object(json));
  const JsonView root = document.root();
  const JsonView items = root["items"];
  if (!root["kind"].text().ends_with("List") || (items && !items.is_array()) ||
      items.size() > kLeasesMaximum) {
    return Error{ErrorKind::InvalidArgument, "expected a list of Leases"};
  }
  LeaseList list;
  list.metadata = {.resource_version = std::string(root["metadata"]["resourceVersion"].text()),
                   .continue_token = std::string(root["metadata"]["continue"].text())};
  for (std::size_t i = 0; i < items.size(); ++i) {
    list.leases.push_back(TRY(to_lease(items.at(i))));
  }
  return list;
}

std::string lease_body(const LeaseWrite& write) {
  const std::string now = format_rfc3339_micro(write.now);
  Json metadata = {{"name", write.name}, {"namespace", write.namespace_name}};
  if (!write.resource_version.empty()) {
    metadata["resourceVersion"] = write.resource_version;
  }
  const Json spec = {{"holderIdentity", write.holder},
                     {"leaseDurationSeconds", write.duration_seconds},
                     {"acquireTime", write.acquire_time.empty() ? now : write.acquire_time},
                     {"renewTime", now},
                     {"leaseTransitions", write.transitions}};
  const Json body = {{"apiVersion", "coordination.k8s.io/v1"},
                     {"kind", "Lease"},
                     {"metadata", metadata},
                     {"spec", spec}};
  return body.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace imagefs_guard
