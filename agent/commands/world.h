#pragma once
/// A model of one node: image filesystem, containerd's pulls, the kubelet's pulls, evictions and
/// image garbage collection. Deterministic: one seed, integer arithmetic, no clock. Used by
/// `simulate` and by tests/sim, which run the real decide() against it. What it models and with
/// which numbers: facts measured on containerd 2.2 and kubelet 1.34.

#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "agent/core/decision.h"
#include "agent/core/node_snapshot.h"
#include "agent/core/policy.h"

namespace imagefs_guard {

/// Portable randomness: std's distributions differ between libraries.
class Prng {
 public:
  explicit Prng(std::uint64_t seed) : engine_(seed) {}

  /// 0 … bound - 1; bound must not be 0.
  [[nodiscard]] std::uint64_t below(std::uint64_t bound) { return engine_() % bound; }

  [[nodiscard]] bool one_in(std::uint64_t n) { return below(n) == 0; }

 private:
  std::mt19937_64 engine_;
};

/// An image of the model: what decide() may know (`manifest`) and what is true.
struct WorldImage {
  std::string name;
  ImageManifest manifest;
  std::vector<std::int64_t> true_unpacked_bytes;  // per layer
};

struct WorldPod {
  std::string name;
  std::string image;
  std::int32_t priority = 0;
  bool is_protected = false;  // carries the protecting annotation
  Duration arrives{};
  Duration runs_for = std::chrono::hours(24);
  std::optional<Duration> deleted;  // by its owner
  std::int64_t written_bytes_per_second = 0;
};

/// Somebody else's bytes on the disk from then on.
struct WorldFiller {
  Duration at{};
  std::int64_t bytes = 0;
};

struct WorldConfig {
  std::uint64_t seed = 1;
  std::int64_t capacity_bytes = 0;
  std::vector<WorldFiller> fillers;  // sorted by time
  KubeletConfig kubelet;
  Duration eviction_transition = std::chrono::minutes(5);
  bool kubelet_collects_images = true;
  std::vector<WorldImage> images;
  std::vector<WorldPod> pods;
  std::int64_t download_bytes_per_second = std::int64_t{100} << 20;
  std::int64_t unpack_bytes_per_second = std::int64_t{150} << 20;
};

struct WorldEviction {
  Duration at{};
  std::string pod;
};

class World {
 public:
  World(WorldConfig config, Policy policy);

  /// Lets `step` pass (the model's resolution; 100 to 500 ms).
  void advance(Duration step);

  /// Until then nothing changes by itself: no pull runs, no pod comes, goes or is due. now() while
  /// something is under way. What an agent does can change that.
  [[nodiscard]] Duration quiet_until() const;

  /// What an agent would see now.
  [[nodiscard]] NodeSnapshot observe() const;

  /// Carries out what the agent has decided.
  void apply(const Decision& decision);

  /// The agent is gone: its holds are too.
  void drop_agent();

  [[nodiscard]] Duration now() const { return now_; }

  [[nodiscard]] std::int64_t available_bytes() const;

  [[nodiscard]] std::int64_t lowest_available_bytes() const { return lowest_available_; }

  [[nodiscard]] const std::vector<WorldEviction>& evictions() const { return evictions_; }

  [[nodiscard]] bool is_running(const std::string& pod) const;

  [[nodiscard]] bool disk_pressure() const { return disk_pressure_; }

  [[nodiscard]] int failed_pulls() const { return failed_pulls_; }

  [[nodiscard]] int taint_writes() const { return taint_writes_; }

  /// Layer bytes that held pulls have written while they were held: must stay 0.
  [[nodiscard]] std::int64_t bytes_written_while_held() const { return held_bytes_; }

 private:
  enum class PodState { Absent, Bound, Pulling, BackOff, Running, Done, Evicted, Deleted };

  struct PodStatus {
    PodState state = PodState::Absent;
    Duration since{};
    Duration starts_pull_at{};
    int failures = 0;
    std::int64_t written_bytes = 0;
    bool ever_started = false;
    bool deleting = false;
  };

  struct LayerProgress {
    std::int64_t downloaded = 0;
    std::int64_t unpacked = 0;
  };

  enum class Phase { AtConfig, Writing, Failing };

  struct RunningPull {
    std::size_t image = 0;
    Phase phase = Phase::AtConfig;
    Duration phase_since{};
    std::string lease_id;
    bool lease_deleted = false;
    std::vector<LayerProgress> layers;
  };

  struct CommittedLayer {
    std::int64_t bytes = 0;
    Duration at{};
  };

  struct LooseBlob {  // discarded, not collected yet
    Digest digest;
    std::int64_t bytes = 0;
    Duration gone_at{};
  };

  void arrive_and_leave();
  void start_pull(std::size_t pod);
  void advance_pull(RunningPull& pull, Duration step, std::int64_t pulls_writing);
  void download(RunningPull& pull, std::int64_t budget);
  void unpack(RunningPull& pull, std::int64_t budget);
  void finish_pull(RunningPull& pull);
  void fail_pull(RunningPull& pull);
  void kubelet_pass();
  bool collect_unused_images();
  void evict_one();
  [[nodiscard]] bool is_held(std::size_t image) const;
  [[nodiscard]] bool is_present(std::size_t image) const;
  [[nodiscard]] bool is_layer_present(const Layer& layer) const;
  [[nodiscard]] std::int64_t used_bytes() const;
  [[nodiscard]] std::int64_t eviction_quantity() const;
  [[nodiscard]] Pod pod_object(std::size_t index) const;
  [[nodiscard]] std::size_t image_index(const std::string& name) const;

  WorldConfig config_;
  Policy policy_;
  Prng prng_;
  Duration now_{};
  Duration next_kubelet_pass_{};
  Duration pressure_until_{};
  bool disk_pressure_ = false;
  std::vector<PodStatus> pods_;
  std::vector<RunningPull> pulls_;
  std::map<Digest, CommittedLayer> committed_;  // by chain ID
  std::map<std::size_t, Duration> present_images_;
  std::vector<LooseBlob> loose_blobs_;
  std::map<Digest, HoldState> holds_;  // by manifest digest
  std::vector<Taint> taints_;
  std::vector<WorldEviction> evictions_;
  std::int64_t lowest_available_ = 0;
  std::int64_t held_bytes_ = 0;
  int failed_pulls_ = 0;
  int taint_writes_ = 0;
  int next_lease_ = 1;
};

}  // namespace imagefs_guard
