#pragma once
/// What the agent saw of its node, as plain values: the only input of decide() beside memory and
/// policy. Each part may be absent: not observed is not zero, and the planner does nothing on it.
/// Filled by probes/ and registry/, written by the flight recorder, made up by tests.

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "agent/core/digest.h"
#include "agent/core/job.h"
#include "agent/core/result.h"
#include "agent/core/threshold.h"
#include "agent/core/time.h"

namespace imagefs_guard {

// ---- filesystems -------------------------------------------------------------------------

enum class FilesystemKind { Ext4, Xfs, Other };

/// One device. Several roots on the same device are one Filesystem. Source: statvfs.
struct Filesystem {
  std::uint64_t device_id = 0;
  std::string path;  // one directory on it
  FilesystemKind kind = FilesystemKind::Other;
  bool holds_images = false;   // the runtime's root is on it: the image filesystem
  bool holds_kubelet = false;  // the kubelet's root is on it: nodefs
  std::int64_t capacity_bytes = 0;
  std::int64_t available_bytes = 0;  // f_bavail: without the root reserve
  std::int64_t inodes = 0;
  std::int64_t inodes_free = 0;
  std::int64_t block_bytes = 4096;

  bool operator==(const Filesystem&) const = default;
};

// ---- kubelet -----------------------------------------------------------------------------

enum class EvictionSignal {
  NodefsAvailable,
  NodefsInodesFree,
  ImagefsAvailable,
  ImagefsInodesFree,
};

struct EvictionThreshold {
  EvictionSignal signal = EvictionSignal::NodefsAvailable;
  ThresholdValue value;
  ThresholdValue minimum_reclaim;  // added while the kubelet is under pressure
  Duration grace_period{};         // soft thresholds only

  bool operator==(const EvictionThreshold&) const = default;
};

/// Live configuration, defaults already applied as this kubelet would. Source: /configz or a
/// KubeletConfiguration file.
struct KubeletConfig {
  std::vector<EvictionThreshold> eviction_hard;
  std::vector<EvictionThreshold> eviction_soft;
  int image_gc_high_percent = 85;
  int image_gc_low_percent = 80;
  Duration image_minimum_gc_age = std::chrono::minutes(2);
  bool serialize_image_pulls = true;
  std::optional<int> max_parallel_image_pulls;

  bool operator==(const KubeletConfig&) const = default;
};

// ---- container runtime -------------------------------------------------------------------

/// An image record of the runtime: a name that points at a manifest (or index) digest.
struct LocalImage {
  std::string name;  // "docker.io/library/x:1", "repo@sha256:…" or "sha256:…" (config digest)
  Digest target;
  WallTime created_at{};
  bool pinned = false;
  Digest image_id;   // CRI's: the config's digest; zero = not known
  Digest top_chain;  // its topmost layer snapshot; zero = not known

  bool operator==(const LocalImage&) const = default;
};

struct LocalBlob {
  Digest digest;
  std::int64_t bytes = 0;

  bool operator==(const LocalBlob&) const = default;
};

/// A committed layer snapshot. `unpacked_bytes` is -1 until somebody asked the snapshotter.
struct LayerSnapshot {
  Digest chain_id;
  std::int64_t unpacked_bytes = -1;
  std::int64_t inodes = -1;
  Digest parent;  // chain ID of the layer below; zero = none

  bool operator==(const LayerSnapshot&) const = default;
};

/// A live download: `ref` as containerd has it, "layer-sha256:…".
struct Ingest {
  std::string ref;
  std::int64_t offset_bytes = 0;
  std::int64_t total_bytes = 0;  // 0 = not known

  bool operator==(const Ingest&) const = default;
};

/// A layer that is being unpacked: the active snapshot "extract-… <chain ID>".
struct ActiveExtract {
  Digest chain_id;
  std::int64_t unpacked_bytes = -1;  // so far; -1 = not asked

  bool operator==(const ActiveExtract&) const = default;
};

/// A containerd lease that protects a pull: made when the pull starts, gone when it returns.
struct PullLease {
  std::string id;
  WallTime created_at{};
  std::vector<Digest> content;
  std::vector<std::string> ingest_refs;

  bool operator==(const PullLease&) const = default;
};

enum class HoldState { Opening, Held, TooLate, NothingToHold, Failed };

/// A hold of ours, as the runner sees its streams. Not containerd's word for anything.
struct Hold {
  Digest manifest_digest;
  HoldState state = HoldState::Opening;
  MonotonicTime since{};
  std::string error;  // for Failed: what containerd said

  bool operator==(const Hold&) const = default;
};

/// Source: containerd's socket. Vectors are sorted by their first member (blobs, snapshots,
/// extracts by digest; images by name; leases by id), so that look-ups are binary searches.
struct RuntimeState {
  std::string version;
  std::vector<LocalImage> images;
  std::vector<LocalBlob> blobs;
  std::vector<LayerSnapshot> snapshots;
  std::vector<ActiveExtract> extracts;
  std::vector<Ingest> ingests;
  std::vector<PullLease> leases;
  /// Layers that containers (sandboxes too) stand on directly. Sorted, each once.
  std::vector<Digest> used_chains;

  bool operator==(const RuntimeState&) const = default;
};

// ---- Kubernetes --------------------------------------------------------------------------

enum class PodPhase { Pending, Running, Succeeded, Failed, Unknown };
enum class PullPolicy { Always, IfNotPresent, Never };

struct Container {
  std::string name;
  std::string image;  // as in the pod spec
  /// The runtime's name for it: "docker.io/library/x:1". Filled when the snapshot is assembled.
  std::string canonical_image;
  PullPolicy pull_policy = PullPolicy::IfNotPresent;
  bool init = false;
  bool started = false;  // has run, or runs: its status has an image ID, a state, or a restart
  /// state.waiting.reason: "ContainerCreating", "ErrImagePull", "ImagePullBackOff", …
  std::string waiting_reason;

  bool operator==(const Container&) const = default;
};

/// As in a pod's spec; without a key it tolerates every one.
struct Toleration {
  std::string key;
  std::string value;
  std::string effect;   // empty = every effect
  bool exists = false;  // operator Exists: whatever the value

  bool operator==(const Toleration&) const = default;
};

struct Pod {
  std::string namespace_name;
  std::string name;
  std::string uid;
  std::string resource_version;
  PodPhase phase = PodPhase::Pending;
  bool deleting = false;
  bool mirror = false;             // static pod's mirror
  bool disruption_target = false;  // condition DisruptionTarget, with our reason
  std::int32_t priority = 0;
  std::map<std::string, std::string> labels;
  std::map<std::string, std::string> annotations;  // only imagefs-guard.io/ and dask/argo/… marks
  std::optional<OwnerReference> controller;
  std::vector<Container> containers;    // init containers first, in spec order
  std::vector<Toleration> tolerations;  // without those of the kubelet's own taints
  std::int64_t ephemeral_storage_request_bytes = 0;
  WallTime created_at{};
  MonotonicTime observed_at{};  // when the agent first saw it bound to this node

  bool operator==(const Pod&) const = default;
};

struct Taint {
  std::string key;
  std::string value;
  std::string effect;

  bool operator==(const Taint&) const = default;
};

enum class ConditionStatus { True, False, Unknown };

/// Our condition on the node, as the API server has it.
struct RiskCondition {
  ConditionStatus status = ConditionStatus::Unknown;
  std::string reason;
  std::string message;
  std::string last_transition_time;

  bool operator==(const RiskCondition&) const = default;
};

struct Node {
  std::string name;
  std::string uid;
  std::string resource_version;
  std::map<std::string, std::string> labels;
  std::map<std::string, std::string> annotations;  // only imagefs-guard.io/
  std::vector<Taint> taints;
  bool disk_pressure = false;
  std::optional<RiskCondition> risk_condition;
  DrainRecords drained;  // of pods whose owner is no Job
  std::string operating_system;
  std::string architecture;
  std::string container_runtime;  // "containerd://2.2.9", "cri-o://1.34.0"

  bool operator==(const Node&) const = default;
};

// ---- images, from the registry or the node's content store --------------------------------

enum class LayerCompression { None, Gzip, Zstd, Unknown };

enum class SizeSource {
  LearnedHere,
  LearnedElsewhere,
  Toc,          // eStargz or zstd:chunked table of contents
  GzipTrailer,  // ISIZE, modulo 2^32
  ZstdHeader,   // content size of the only frame
  Annotation,
  PlainTar,
  ZstdFirstFrame,  // content size of the first of several frames: a lower bound
  Prior,
};

constexpr std::size_t kSizeSources = 9;

/// One thing that somebody says about a layer's uncompressed size.
struct SizeFact {
  SizeSource source = SizeSource::Prior;
  /// LearnedHere, LearnedElsewhere: the snapshotter's Usage. Toc: blocks of all but directories.
  /// GzipTrailer: the raw 32-bit ISIZE. ZstdHeader, ZstdFirstFrame, Annotation: tar bytes.
  std::int64_t bytes = 0;
  std::int64_t inodes = -1;
  /// GzipTrailer, ZstdHeader: how much of the tar the headers at its beginning speak for, and what
  /// that takes on the disk (`inodes`: of that part). 0 = no headers were read.
  std::int64_t sampled_tar_bytes = 0;
  std::int64_t sampled_disk_bytes = 0;
  /// Toc: blocks of directories. ext4 gives each one a block, XFS keeps small ones in the inode.
  std::int64_t ext4_directory_bytes = 0;
  std::int64_t xfs_directory_bytes = 0;
  /// Toc: the tar that its entries make, at least: what the blob's size is held against.
  std::int64_t toc_tar_bytes = 0;
  /// LearnedHere, LearnedElsewhere: the filesystem that Usage was measured on.
  FilesystemKind measured_on = FilesystemKind::Other;

  bool operator==(const SizeFact&) const = default;
};

struct Layer {
  Digest digest;
  std::int64_t compressed_bytes = 0;
  LayerCompression compression = LayerCompression::Unknown;
  bool foreign = false;  // fetched from elsewhere, still lands on the disk
  Digest diff_id;        // zero where the config does not say
  Digest chain_id;
  std::vector<SizeFact> facts;
  bool size_pending = false;  // somebody is being asked for its size just now

  bool operator==(const Layer&) const = default;
};

/// A platform manifest with its config, digests verified. `layers` holds what is unpacked:
/// attestations and other non-layers are left out, duplicates kept in order.
struct ImageManifest {
  Digest manifest_digest;
  Digest index_digest;  // of the index that named it; zero if none did
  Digest config_digest;
  std::string config_ref;  // containerd's ingest ref of the config blob: "config-sha256:…"
  std::int64_t config_bytes = 0;
  std::vector<Layer> layers;

  bool operator==(const ImageManifest&) const = default;
};

/// What an image name of a pod resolves to. Source: registry, or the local image of that name.
struct ResolvedImage {
  std::string image;  // as in the pod spec
  std::optional<Digest> manifest_digest;
  std::optional<Error> error;  // why there is none
  bool in_flight = false;
  MonotonicTime resolved_at{};  // of the answer, good or bad
  int failures = 0;

  bool operator==(const ResolvedImage&) const = default;
};

// ---- what became of actions ----------------------------------------------------------------

/// The end of an action that an earlier decision ordered. `key` is action_key()'s.
struct ActionOutcome {
  std::string key;
  std::optional<Error> error;
  bool skipped = false;  // observe mode

  bool operator==(const ActionOutcome&) const = default;
};

/// How fast pulls have gone on this node lately.
struct PullRates {
  std::int64_t download_bytes_per_second = 0;
  std::int64_t unpack_bytes_per_second = 0;

  bool operator==(const PullRates&) const = default;
};

struct NodeSnapshot {
  MonotonicTime taken_at{};
  WallTime wall_time{};  // only for what is published
  std::optional<KubeletConfig> kubelet;
  std::optional<std::vector<Filesystem>> filesystems;
  std::optional<RuntimeState> runtime;
  MonotonicTime runtime_observed_at{};
  std::optional<std::vector<Pod>> pods;  // sorted by namespace, name
  std::optional<Node> node;
  std::vector<ResolvedImage> resolved;   // sorted by image
  std::vector<ImageManifest> manifests;  // sorted by manifest digest
  std::vector<Hold> holds;               // sorted by manifest digest
  std::optional<PullRates> rates;        // absent: not measured yet
  std::vector<JobState> jobs;            // sorted by namespace, name
  /// Who else renews this node's Lease: two agents claim one node.
  std::optional<std::string> rival_agent;
  std::vector<PodCheck> pod_checks;     // sorted by pod uid
  std::vector<std::string> running;     // keys of actions under way, sorted
  std::vector<ActionOutcome> outcomes;  // since the last tick
  /// Why a part is absent, in words: {"kubelet", "GET /configz: connection refused"}.
  std::map<std::string, std::string> probe_errors;

  bool operator==(const NodeSnapshot&) const = default;
};

}  // namespace imagefs_guard
