// What the API server answers, and what is made of it: objects, lists, watches, patches, records.
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "agent/core/verify.h"
#include "agent/kube/line_decoder.h"
#include "agent/wire/cluster_json.h"
#include "agent/wire/drain_json.h"
#include "agent/wire/kube_json.h"
#include "agent/wire/kube_patch.h"
#include "agent/wire/lease_json.h"
#include "agent/wire/size_json.h"
#include "tests/fuzz/pieces.h"
#include "tests/fuzz/targets.h"

namespace imagefs_guard::fuzz {

namespace {

using Json = nlohmann::json;

constexpr const char* kTaintKey = "imagefs-guard";

void check_pod(const Pod& pod) {
  VERIFY(pod.ephemeral_storage_request_bytes >= 0);
  for (const auto& [key, value] : pod.annotations) {
    VERIFY(value.size() <= kAnnotationValueLimit);
  }
}

/// The taints that are not ours; an odd list is no list.
Json others(const Json& node) {
  Json taints = Json::array();
  const Json::json_pointer path("/spec/taints");
  if (node.is_object() && node.contains(path) && node[path].is_array()) {
    for (const Json& taint : node[path]) {
      if (!taint.is_object() || !taint.contains("key") || taint["key"] != kTaintKey) {
        taints.push_back(taint);
      }
    }
  }
  return taints;
}

/// Applied, the patch leaves other writers' taints as they are, and there is nothing more to do.
void check_taint_patch(std::string_view input, TaintEffect effect) {
  const SetTaint wanted{.key = kTaintKey, .value = "guard", .effect = effect, .reason = ""};
  const auto patch = taint_patch(input, wanted);
  if (!patch || !patch->has_value()) {
    return;
  }
  const Json node = Json::parse(input, nullptr, false);
  // Bytes that are no UTF-8 are replaced when written: a real server sends none.
  if (node.dump(-1, ' ', false, Json::error_handler_t::replace).find("\xEF\xBF\xBD") !=
      std::string::npos) {
    return;
  }
  const Json patched = node.patch(Json::parse(**patch));
  VERIFY(others(patched) == others(node));
  const auto again = taint_patch(patched.dump(), wanted);
  VERIFY(again && !again->has_value());
}

void check_cleaning(std::string_view input) {
  const Json node = Json::parse(input, nullptr, false);
  const Json::json_pointer path("/metadata/uid");
  if (!node.is_object() || !node.contains(path) || !node[path].is_string()) {
    return;
  }
  const CleanNode action{.node = "n1", .uid = node[path].get<std::string>(), .reason = ""};
  const auto cleaning = clean_node_patches(input, action, kTaintKey);
  if (cleaning && cleaning->node_patch.has_value()) {
    for (const Json& operation : Json::parse(*cleaning->node_patch)) {
      VERIFY(operation["op"] == "test" || operation["op"] == "remove");
    }
  }
}

template <typename Body>
void check_json(const Result<Body>& body) {
  if (body) {
    VERIFY(Json::accept(*body));
  }
}

struct Watched {
  std::size_t lines = 0;
  std::size_t good = 0;
  bool ended = false;

  bool operator==(const Watched&) const = default;
};

Watched watch_stream(std::string_view input, bool cut) {
  Watched seen;
  LineDecoder lines(std::size_t{16} << 10);
  const auto feed = [&](std::string_view piece) {
    const Result<void> fed = lines.feed(piece, [&](std::string_view line) -> Result<void> {
      ++seen.lines;
      const auto pod = parse_pod_watch_event(line);
      if (pod) {
        check_pod(pod->pod);
      }
      const auto node = parse_node_watch_event(line);
      seen.good += static_cast<std::size_t>(pod.has_value()) + (node ? 1U : 0U);
      return {};
    });
    seen.ended = !fed;
    return !seen.ended;
  };
  if (cut) {
    in_pieces(input, feed);
  } else {
    feed(input);
  }
  return seen;
}

}  // namespace

void kube(std::string_view input) {
  if (const auto pod = parse_pod(input); pod) {
    check_pod(*pod);
  }
  if (const auto pods = parse_pod_list(input); pods) {
    VERIFY(pods->pods.size() <= kPodLimit);
  }
  static_cast<void>(parse_node(input));
  static_cast<void>(parse_node_list(input));
  static_cast<void>(parse_job(input));
  static_cast<void>(parse_job_list(input));
  static_cast<void>(parse_lease(input));
  static_cast<void>(parse_lease_list(input));
  static_cast<void>(parse_api_status(input));
  std::vector<MarkedNode> marked;
  static_cast<void>(parse_marked_nodes(input, marked));
  std::vector<std::string> agents;
  static_cast<void>(parse_agent_nodes(input, agents));
  std::vector<AgentLease> leases;
  static_cast<void>(parse_agent_leases(input, leases));
}

void kube_patch(std::string_view input) {
  for (const TaintEffect effect :
       {TaintEffect::None, TaintEffect::PreferNoSchedule, TaintEffect::NoSchedule}) {
    check_taint_patch(input, effect);
  }
  check_cleaning(input);
  if (const auto job = parse_job(input); job) {
    const NamedObject named{job->namespace_name, job->name, job->uid};
    check_json(suspend_patch(input, {.job = named, .resource_version = job->resource_version}));
    check_json(resume_patch(input, {.job = named, .hold_text = job->hold_text}));
    check_json(
        drain_record_patch(input, {.job = named, .resource_version = job->resource_version}));
  }
}

void drain_records(std::string_view input) {
  const HoldRecord hold = parse_hold_record(input);
  if (hold.version == 1) {
    VERIFY(parse_hold_record(hold_record_text(hold)).pod_uid.size() <= input.size());
  }
  const DrainRecords records = parse_drain_records(input);
  if (records.readable) {
    for (const DrainRecord& drain : records.drains) {
      VERIFY(drain.capacity_bytes >= 0);
    }
    VERIFY(drain_records_text(parse_drain_records(drain_records_text(records.drains)).drains) ==
           drain_records_text(records.drains));
  }
}

void size_records(std::string_view input) {
  const std::vector<SizeRecord> records = parse_size_records(input, 100);
  VERIFY(records.size() <= 100);
  for (const SizeRecord& record : records) {
    VERIFY(record.bytes >= 0 && record.inodes >= 0);
  }
  VERIFY(parse_size_records(encode_size_records(records), 100) == records);
  static_cast<void>(parse_size_map(input));
  std::vector<NamedVersion> versions;
  static_cast<void>(parse_size_versions(input, versions));
}

void watch(std::string_view input) {
  VERIFY(watch_stream(input, true).good <= 2 * watch_stream(input, true).lines);
  const Watched whole = watch_stream(input, false);
  const Watched cut = watch_stream(input, true);
  VERIFY(whole == cut);
}

}  // namespace imagefs_guard::fuzz
