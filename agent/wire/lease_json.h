#pragma once
/// coordination.k8s.io/v1 Leases: who is alive, who is elected. Pure; called by kube/lease_keeper
/// and by the coordinator.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "agent/core/result.h"
#include "agent/core/time.h"
#include "agent/wire/kube_json.h"

namespace imagefs_guard {

struct Lease {
  std::string name;
  std::string resource_version;
  std::string holder;
  std::string renew_time;  // as the server has it: only whether it changes counts
  std::string acquire_time;
  std::int64_t transitions = 0;

  bool operator==(const Lease&) const = default;
};

struct LeaseList {
  ListMetadata metadata;
  std::vector<Lease> leases;

  bool operator==(const LeaseList&) const = default;
};

[[nodiscard]] Result<Lease> parse_lease(std::string_view json);
[[nodiscard]] Result<LeaseList> parse_lease_list(std::string_view json);

/// What is written: without a resource version it is a create.
struct LeaseWrite {
  std::string namespace_name;
  std::string name;
  std::string resource_version;
  std::string holder;
  std::string acquire_time;  // empty: now
  std::int64_t transitions = 0;
  std::int64_t duration_seconds = 0;
  WallTime now{};
};

[[nodiscard]] std::string lease_body(const LeaseWrite& write);

}  // namespace imagefs_guard
