#pragma once
/// The members of everything that a trace holds, each named once: trace.cc writes, reads and
/// hashes with them. A member that is missing here is missing in every trace; trace_test.cc makes
/// sure that what is written comes back.

#include <concepts>
#include <string_view>
#include <type_traits>

#include "agent/core/decision.h"
#include "agent/core/node_snapshot.h"
#include "agent/core/policy.h"

namespace imagefs_guard::trace {

/// T or const T.
template <typename V, typename T>
concept Is = std::same_as<std::remove_const_t<V>, T>;

/// Names of an enum's values in their order.
template <typename E>
struct EnumNames;

template <>
struct EnumNames<FilesystemKind> {
  static constexpr std::string_view kNames[] = {"ext4", "xfs", "other"};
};

template <>
struct EnumNames<EvictionSignal> {
  static constexpr std::string_view kNames[] = {
      "nodefs.available", "nodefs.inodesFree", "imagefs.available", "imagefs.inodesFree"};
};

template <>
struct EnumNames<HoldState> {
  static constexpr std::string_view kNames[] = {
      "Opening", "Held", "TooLate", "NothingToHold", "Failed"};
};

template <>
struct EnumNames<PodPhase> {
  static constexpr std::string_view kNames[] = {
      "Pending", "Running", "Succeeded", "Failed", "Unknown"};
};

template <>
struct EnumNames<PullPolicy> {
  static constexpr std::string_view kNames[] = {"Always", "IfNotPresent", "Never"};
};

template <>
struct EnumNames<ConditionStatus> {
  static constexpr std::string_view kNames[] = {"True", "False", "Unknown"};
};

template <>
struct EnumNames<LayerCompression> {
  static constexpr std::string_view kNames[] = {"none", "gzip", "zstd", "unknown"};
};

template <>
struct EnumNames<SizeSource> {
  static constexpr std::string_view kNames[] = {"learned_here",
                                                "learned_elsewhere",
                                                "toc",
                                                "gzip_trailer",
                                                "zstd_header",
                                                "annotation",
                                                "plain_tar",
                                                "zstd_first_frame",
                                                "prior"};
};

template <>
struct EnumNames<ErrorKind> {
  static constexpr std::string_view kNames[] = {"Cancelled",
                                                "InvalidArgument",
                                                "DeadlineExceeded",
                                                "NotFound",
                                                "AlreadyExists",
                                                "PermissionDenied",
                                                "Unauthenticated",
                                                "ResourceExhausted",
                                                "FailedPrecondition",
                                                "Aborted",
                                                "Unimplemented",
                                                "Unavailable",
                                                "Internal"};
};

template <>
struct EnumNames<FailureAction> {
  static constexpr std::string_view kNames[] = {
      "Ignore", "FailJob", "FailIndex", "Count", "Unknown"};
};

template <>
struct EnumNames<Stage> {
  static constexpr std::string_view kNames[] = {"clear", "warn", "guard", "standdown"};
};

template <>
struct EnumNames<FindingKind> {
  static constexpr std::string_view kNames[] = {"imagefs_threshold_unset",
                                                "image_gc_too_late",
                                                "volume_too_small",
                                                "volume_missing",
                                                "volume_wrong",
                                                "blobs_kept",
                                                "sandbox_image_unpinned",
                                                "protected_pod_without_request",
                                                "protected_pod_without_toleration",
                                                "leftover_bytes",
                                                "unexplained_growth"};
};

template <>
struct EnumNames<Mode> {
  static constexpr std::string_view kNames[] = {"enforce", "observe"};
};

template <>
struct EnumNames<LegacyPrefectAction> {
  static constexpr std::string_view kNames[] = {"hold", "deleteJob"};
};

template <>
struct EnumNames<Verdict> {
  static constexpr std::string_view kNames[] = {
      "Unknown", "Fits", "FitsAfterReclaim", "FitsLater", "DoesNotFit", "NeverFits"};
};

template <>
struct EnumNames<PullState> {
  static constexpr std::string_view kNames[] = {"expected", "held", "downloading", "unpacking"};
};

template <>
struct EnumNames<TaintEffect> {
  static constexpr std::string_view kNames[] = {"None", "PreferNoSchedule", "NoSchedule"};
};

// ---- snapshot ------------------------------------------------------------------------------

void fields(auto& a, Is<Error> auto& v) {
  a("kind", v.kind);
  a("message", v.message);
}

void fields(auto& a, Is<ThresholdValue> auto& v) {
  a("quantity", v.quantity);
  a("fraction_bits", v.fraction_bits);
}

void fields(auto& a, Is<Filesystem> auto& v) {
  a("device_id", v.device_id);
  a("path", v.path);
  a("kind", v.kind);
  a("holds_images", v.holds_images);
  a("holds_kubelet", v.holds_kubelet);
  a("capacity_bytes", v.capacity_bytes);
  a("available_bytes", v.available_bytes);
  a("inodes", v.inodes);
  a("inodes_free", v.inodes_free);
  a("block_bytes", v.block_bytes);
}

void fields(auto& a, Is<EvictionThreshold> auto& v) {
  a("signal", v.signal);
  a("value", v.value);
  a("minimum_reclaim", v.minimum_reclaim);
  a("grace_period_us", v.grace_period);
}

void fields(auto& a, Is<KubeletConfig> auto& v) {
  a("eviction_hard", v.eviction_hard);
  a("eviction_soft", v.eviction_soft);
  a("image_gc_high_percent", v.image_gc_high_percent);
  a("image_gc_low_percent", v.image_gc_low_percent);
  a("image_minimum_gc_age_us", v.image_minimum_gc_age);
  a("serialize_image_pulls", v.serialize_image_pulls);
  a("max_parallel_image_pulls", v.max_parallel_image_pulls);
}

void fields(auto& a, Is<LocalImage> auto& v) {
  a("name", v.name);
  a("target", v.target);
  a("created_at_us", v.created_at);
  a("pinned", v.pinned);
  a("image_id", v.image_id);
  a("top_chain", v.top_chain);
}

void fields(auto& a, Is<LocalBlob> auto& v) {
  a("digest", v.digest);
  a("bytes", v.bytes);
}

void fields(auto& a, Is<LayerSnapshot> auto& v) {
  a("chain_id", v.chain_id);
  a("unpacked_bytes", v.unpacked_bytes);
  a("inodes", v.inodes);
  a("parent", v.parent);
}

void fields(auto& a, Is<Ingest> auto& v) {
  a("ref", v.ref);
  a("offset_bytes", v.offset_bytes);
  a("total_bytes", v.total_bytes);
}

void fields(auto& a, Is<ActiveExtract> auto& v) {
  a("chain_id", v.chain_id);
  a("unpacked_bytes", v.unpacked_bytes);
}

void fields(auto& a, Is<PullLease> auto& v) {
  a("id", v.id);
  a("created_at_us", v.created_at);
  a("content", v.content);
  a("ingest_refs", v.ingest_refs);
}

void fields(auto& a, Is<Hold> auto& v) {
  a("manifest_digest", v.manifest_digest);
  a("state", v.state);
  a("since_us", v.since);
  a("error", v.error);
}

void fields(auto& a, Is<Container> auto& v) {
  a("name", v.name);
  a("image", v.image);
  a("canonical_image", v.canonical_image);
  a("pull_policy", v.pull_policy);
  a("init", v.init);
  a("started", v.started);
  a("waiting_reason", v.waiting_reason);
}

void fields(auto& a, Is<Toleration> auto& v) {
  a("key", v.key);
  a("value", v.value);
  a("effect", v.effect);
  a("exists", v.exists);
}

void fields(auto& a, Is<OwnerReference> auto& v) {
  a("api_version", v.api_version);
  a("kind", v.kind);
  a("name", v.name);
  a("uid", v.uid);
}

void fields(auto& a, Is<Pod> auto& v) {
  a("namespace", v.namespace_name);
  a("name", v.name);
  a("uid", v.uid);
  a("resource_version", v.resource_version);
  a("phase", v.phase);
  a("deleting", v.deleting);
  a("mirror", v.mirror);
  a("disruption_target", v.disruption_target);
  a("priority", v.priority);
  a("labels", v.labels);
  a("annotations", v.annotations);
  a("controller", v.controller);
  a("containers", v.containers);
  a("tolerations", v.tolerations);
  a("ephemeral_storage_request_bytes", v.ephemeral_storage_request_bytes);
  a("created_at_us", v.created_at);
  a("observed_at_us", v.observed_at);
}

void fields(auto& a, Is<Taint> auto& v) {
  a("key", v.key);
  a("value", v.value);
  a("effect", v.effect);
}

void fields(auto& a, Is<RiskCondition> auto& v) {
  a("status", v.status);
  a("reason", v.reason);
  a("message", v.message);
  a("last_transition_time", v.last_transition_time);
}

void fields(auto& a, Is<DrainRecord> auto& v) {
  a("digest", v.digest);
  a("capacity_bytes", v.capacity_bytes);
  a("owner_uid", v.owner_uid);
  a("pod_uid", v.pod_uid);
}

void fields(auto& a, Is<DrainRecords> auto& v) {
  a("readable", v.readable);
  a("drains", v.drains);
}

void fields(auto& a, Is<Node> auto& v) {
  a("name", v.name);
  a("uid", v.uid);
  a("resource_version", v.resource_version);
  a("labels", v.labels);
  a("annotations", v.annotations);
  a("taints", v.taints);
  a("disk_pressure", v.disk_pressure);
  a("risk_condition", v.risk_condition);
  a("drained", v.drained);
  a("operating_system", v.operating_system);
  a("architecture", v.architecture);
  a("container_runtime", v.container_runtime);
}

void fields(auto& a, Is<SizeFact> auto& v) {
  a("source", v.source);
  a("bytes", v.bytes);
  a("inodes", v.inodes);
  a("sampled_tar_bytes", v.sampled_tar_bytes);
  a("sampled_disk_bytes", v.sampled_disk_bytes);
  a("ext4_directory_bytes", v.ext4_directory_bytes);
  a("xfs_directory_bytes", v.xfs_directory_bytes);
  a("toc_tar_bytes", v.toc_tar_bytes);
  a("measured_on", v.measured_on);
}

void fields(auto& a, Is<Layer> auto& v) {
  a("digest", v.digest);
  a("compressed_bytes", v.compressed_bytes);
  a("compression", v.compression);
  a("foreign", v.foreign);
  a("diff_id", v.diff_id);
  a("chain_id", v.chain_id);
  a("facts", v.facts);
  a("size_pending", v.size_pending);
}

void fields(auto& a, Is<ImageManifest> auto& v) {
  a("manifest_digest", v.manifest_digest);
  a("index_digest", v.index_digest);
  a("config_digest", v.config_digest);
  a("config_ref", v.config_ref);
  a("config_bytes", v.config_bytes);
  a("layers", v.layers);
}

void fields(auto& a, Is<ResolvedImage> auto& v) {
  a("image", v.image);
  a("manifest_digest", v.manifest_digest);
  a("error", v.error);
  a("in_flight", v.in_flight);
  a("resolved_at_us", v.resolved_at);
  a("failures", v.failures);
}

void fields(auto& a, Is<ActionOutcome> auto& v) {
  a("key", v.key);
  a("error", v.error);
  a("skipped", v.skipped);
}

void fields(auto& a, Is<PullRates> auto& v) {
  a("download_bytes_per_second", v.download_bytes_per_second);
  a("unpack_bytes_per_second", v.unpack_bytes_per_second);
}

void fields(auto& a, Is<HoldRecord> auto& v) {
  a("version", v.version);
  a("token", v.token);
  a("node", v.node);
  a("node_uid", v.node_uid);
  a("pod", v.pod);
  a("pod_uid", v.pod_uid);
  a("since_us", v.since);
  a("resume_by_us", v.resume_by);
  a("image", v.image);
}

void fields(auto& a, Is<PodConditionPattern> auto& v) {
  a("type", v.type);
  a("status", v.status);
}

void fields(auto& a, Is<PodFailureRule> auto& v) {
  a("action", v.action);
  a("exit_codes_in", v.exit_codes_in);
  a("exit_codes", v.exit_codes);
  a("conditions", v.conditions);
}

void fields(auto& a, Is<Job> auto& v) {
  a("namespace", v.namespace_name);
  a("name", v.name);
  a("uid", v.uid);
  a("resource_version", v.resource_version);
  a("labels", v.labels);
  a("annotations", v.annotations);
  a("controller", v.controller);
  a("suspend", v.suspend);
  a("deleting", v.deleting);
  a("parallelism", v.parallelism);
  a("backoff_limit", v.backoff_limit);
  a("active_deadline_seconds", v.active_deadline_seconds);
  a("managed_by", v.managed_by);
  a("failure_rules", v.failure_rules);
  a("active", v.active);
  a("ready", v.ready);
  a("succeeded", v.succeeded);
  a("failed", v.failed);
  a("complete", v.complete);
  a("failed_for_good", v.failed_for_good);
  a("start_time_us", v.start_time);
  a("hold_text", v.hold_text);
  a("hold", v.hold);
  a("drained", v.drained);
}

void fields(auto& a, Is<JobState> auto& v) {
  a("namespace", v.namespace_name);
  a("name", v.name);
  a("job", v.job);
  a("observed_at_us", v.observed_at);
  a("doubtful", v.doubtful);
}

void fields(auto& a, Is<PodCheck> auto& v) {
  a("namespace", v.namespace_name);
  a("name", v.name);
  a("uid", v.uid);
  a("gone", v.gone);
  a("observed_at_us", v.observed_at);
}

// ---- memory --------------------------------------------------------------------------------

void fields(auto& a, Is<StageState> auto& v) {
  a("stage", v.stage);
  a("calm_since_us", v.calm_since);
  a("started", v.started);
}

void fields(auto& a, Is<PullMemory> auto& v) {
  a("first_seen_us", v.first_seen);
  a("released_at_us", v.released_at);
  a("admitted", v.admitted);
  a("short_since_us", v.short_since);
  a("cancelled_leases", v.cancelled_leases);
  a("cancelled_at_us", v.cancelled_at);
}

void fields(auto& a, Is<Backoff> auto& v) {
  a("failures", v.failures);
  a("not_before_us", v.not_before);
}

void fields(auto& a, Is<Published> auto& v) {
  a("metadata_at_us", v.metadata_at);
  a("status_available_bytes", v.status_available_bytes);
  a("condition_at_us", v.condition_at);
  a("events", v.events);
}

void fields(auto& a, Is<Finding> auto& v) {
  a("kind", v.kind);
  a("sentence", v.sentence);
  a("advice", v.advice);
}

void fields(auto& a, Is<GrowthSample> auto& v) {
  a("at_us", v.at);
  a("bytes", v.bytes);
}

void fields(auto& a, Is<AuditMemory> auto& v) {
  a("looked_at_us", v.looked_at);
  a("whole", v.whole);
  a("findings", v.findings);
  a("suspected_since", v.suspected_since);
  a("told", v.told);
  a("growth", v.growth);
}

void fields(auto& a, Is<Memory> auto& v) {
  a("stage", v.stage);
  a("pulls", v.pulls);
  a("backoff", v.backoff);
  a("published", v.published);
  a("drain_steps", v.drain_steps);
  a("image_used_at", v.image_used_at);
  a("reclaimed_at_us", v.reclaimed_at);
  a("blind_since_us", v.blind_since);
  a("audit", v.audit);
}

// ---- policy --------------------------------------------------------------------------------

void fields(auto& a, Is<LabelMatch> auto& v) {
  a("labels", v.labels);
}

/// What decide() looks at; where registries are and how they are asked is left out.
void fields(auto& a, Is<Policy> auto& v) {
  a("mode", v.mode);
  a("tick_interval_us", v.tick_interval);
  a("floor_margin_bytes", v.floor_margin_bytes);
  a("default_floor", v.default_floor);
  a("guard_margin_bytes", v.guard_margin_bytes);
  a("clear_margin_bytes", v.clear_margin_bytes);
  a("clear_after_us", v.clear_after);
  a("manifest_retry_us", v.manifest_retry);
  a("tag_lifetime_us", v.tag_lifetime);
  a("drain_enabled", v.drain_enabled);
  a("drain_resume_within_us", v.drain_resume_within);
  a("legacy_prefect_pod_watch_us", v.legacy_prefect_pod_watch);
  a("legacy_prefect_action", v.legacy_prefect_action);
  a("spawner_start_timeout_us", v.spawner_start_timeout);
  a("deployment_progress_us", v.deployment_progress);
  a("download_bytes_per_second", v.download_bytes_per_second);
  a("unpack_bytes_per_second", v.unpack_bytes_per_second);
  a("taint_key", v.taint_key);
  a("protected_namespaces", v.protected_namespaces);
  a("protected_labels", v.protected_labels);
  a("protected_priority", v.protected_priority);
  a("blob_access", v.blob_access);
  a("reclaim", v.reclaim);
  a("discard_unpacked_layers", v.discard_unpacked_layers);
}

// ---- decision, written only ----------------------------------------------------------------

void fields(auto& a, Is<Floor> auto& v) {
  a("bytes", v.bytes);
  a("inodes", v.inodes);
  a("source", v.source);
}

void fields(auto& a, Is<NodeReport> auto& v) {
  a("stage", v.stage);
  a("floor", v.floor);
  a("outstanding_bytes", v.outstanding_bytes);
  a("waiting_bytes", v.waiting_bytes);
  a("headroom_bytes", v.headroom_bytes);
  a("leftover_bytes", v.leftover_bytes);
  a("reclaimable_bytes", v.reclaimable_bytes);
  a("forecast_low_bytes", v.forecast_low_bytes);
  a("blind_spots", v.blind_spots);
  a("observe_only", v.observe_only);
}

void fields(auto& a, Is<PullReport> auto& v) {
  a("manifest_digest", v.manifest_digest);
  a("image", v.image);
  a("state", v.state);
  a("verdict", v.verdict);
  a("held", v.held);
  a("waits_for_sizes", v.waits_for_sizes);
  a("protected", v.is_protected);
  a("smallest_volume_gib", v.smallest_volume_gib);
  a("reclaim_bytes", v.reclaim_bytes);
  a("pods", v.pods);
  a("sentence", v.sentence);
}

void fields(auto& a, Is<DrainReport> auto& v) {
  a("pod", v.pod);
  a("owner", v.owner);
  a("method", v.method);
  a("sentence", v.sentence);
}

}  // namespace imagefs_guard::trace
