#pragma once
/// Objects of the Kubernetes API, as JSON, to core's values: lists, single objects, lines of a
/// watch, Status. Unknown fields are ignored, absent ones read as the API's defaults. Called by
/// kube/ and probes/; pure.
/// Not read here, the caller's to fill in: Pod::observed_at.

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/core/job.h"
#include "agent/core/node_snapshot.h"
#include "agent/core/result.h"

namespace imagefs_guard {

/// metadata of a list. `continue_token` is empty on the last page.
struct ListMetadata {
  std::string resource_version;
  std::string continue_token;

  bool operator==(const ListMetadata&) const = default;
};

struct PodList {
  ListMetadata metadata;
  std::vector<Pod> pods;  // in the server's order

  bool operator==(const PodList&) const = default;
};

struct NodeList {
  ListMetadata metadata;
  std::vector<Node> nodes;

  bool operator==(const NodeList&) const = default;
};

/// A Status object: the body of a failed request, and the object of an ERROR watch event.
struct ApiStatus {
  int code = 0;  // 410 = relist, also in a watch
  std::string reason;
  std::string message;
  std::vector<std::string> causes;  // details.causes[].reason, "message" where it has none
  std::optional<int> retry_after_seconds;

  bool operator==(const ApiStatus&) const = default;
};

enum class WatchEventType { Added, Modified, Deleted, Bookmark, Error };

/// One line of a watch. For Bookmark only `resource_version` counts, for Error only `status`.
struct PodWatchEvent {
  WatchEventType type = WatchEventType::Added;
  std::string resource_version;
  Pod pod;
  ApiStatus status;

  bool operator==(const PodWatchEvent&) const = default;
};

struct NodeWatchEvent {
  WatchEventType type = WatchEventType::Added;
  std::string resource_version;
  Node node;
  ApiStatus status;

  bool operator==(const NodeWatchEvent&) const = default;
};

/// More would not be one node's pods: the kubelet's own limit is 110, EKS's largest is 737.
constexpr std::size_t kPodLimit = 4096;
/// Larger annotation values (Argo's templates) are left out.
constexpr std::size_t kAnnotationValueLimit = 4096;

[[nodiscard]] Result<Pod> parse_pod(std::string_view json);
[[nodiscard]] Result<PodList> parse_pod_list(std::string_view json);
[[nodiscard]] Result<PodWatchEvent> parse_pod_watch_event(std::string_view line);

[[nodiscard]] Result<Node> parse_node(std::string_view json);
[[nodiscard]] Result<NodeList> parse_node_list(std::string_view json);
[[nodiscard]] Result<NodeWatchEvent> parse_node_watch_event(std::string_view line);

[[nodiscard]] Result<Job> parse_job(std::string_view json);

struct JobList {
  ListMetadata metadata;
  std::vector<Job> jobs;

  bool operator==(const JobList&) const = default;
};

[[nodiscard]] Result<JobList> parse_job_list(std::string_view json);

/// Never fails: a body that is no Status gives `code` 0 and its first 200 bytes as message.
[[nodiscard]] ApiStatus parse_api_status(std::string_view body);

}  // namespace imagefs_guard
