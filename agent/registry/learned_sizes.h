#pragma once
/// What layers have really taken, by diff ID: measured on this node once their pull was done, and
/// told by other nodes. The best source there is: goes into the snapshot as facts before anybody
/// asks a registry. Pure but for its memory, which is bounded; main.cc hands on what it wants to be
/// measured and told.

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "agent/core/node_snapshot.h"
#include "agent/core/size_record.h"

namespace imagefs_guard {

class LearnedSizes {
 public:
  /// Once a tick, after the manifests are in the snapshot: adds facts to their layers, and learns
  /// from layers that are here and have been measured.
  void contribute(NodeSnapshot& snapshot);

  /// Layers that are here, whose size nobody has asked for: chain IDs for the snapshotter. Each
  /// comes again only if there is no answer for a minute.
  [[nodiscard]] std::vector<Digest> to_measure();

  /// What an earlier agent of this node had learned.
  void restore(const std::vector<SizeRecord>& records);
  /// What other nodes have learned; replaces what they told before.
  void set_elsewhere(std::vector<SizeRecord> records);

  /// What is worth telling: large layers, newest first, at most kNodeSizesMaximum.
  [[nodiscard]] std::vector<SizeRecord> to_tell() const;

  /// Grows when to_tell() changes.
  [[nodiscard]] std::size_t version() const { return version_; }

 private:
  struct Known {
    SizeRecord record;
    std::uint64_t order = 0;  // of learning
    bool large = false;
  };

  void look_at(const Layer& layer, const RuntimeState& runtime);
  void learn(const SizeRecord& record, bool large);
  void add_facts(Layer& layer) const;

  FilesystemKind kind_ = FilesystemKind::Other;
  MonotonicTime taken_at_{};
  MonotonicTime looked_at_{};
  std::map<Digest, Known> here_;  // at most kHereMaximum
  std::uint64_t order_ = 0;
  std::vector<SizeRecord> elsewhere_;      // sorted by diff ID
  std::map<Digest, MonotonicTime> asked_;  // chain IDs; at most kAskedMaximum
  std::vector<Digest> to_measure_;
  std::size_t version_ = 0;
  bool is_told_ = false;  // the snapshot of that fingerprint has all facts
  std::uint64_t fingerprint_ = 0;
};

}  // namespace imagefs_guard
