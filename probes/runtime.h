#pragma once
/// What containerd has and does: images, layers, downloads, unpackings and the leases of pulls.
/// Listed once, then kept up to date from its events and, while something moves, by short polls of
/// what has no events (downloads and leases). A full listing every minute makes up for the rest.

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "agent/io/loop.h"
#include "agent/runtime/containerd.h"
#include "probes/probe.h"

namespace imagefs_guard {

class RuntimeProbe final : public Probe {
 public:
  /// Both outlive the probe.
  RuntimeProbe(EventLoop& loop, Containerd& containerd);
  RuntimeProbe(const RuntimeProbe&) = delete;
  RuntimeProbe& operator=(const RuntimeProbe&) = delete;
  ~RuntimeProbe() override;

  [[nodiscard]] const char* name() const override { return "runtime"; }

  void start(std::function<void()> changed) override;
  /// Asks for downloads and leases, unless they are fresh.
  void refresh(std::function<void()> done) override;
  void contribute(NodeSnapshot& snapshot) override;

  /// Polls several times a second while true: a pull is expected, held or running. Without it the
  /// probe does so only while it sees something move.
  void set_watchful(bool watchful);

  /// Asks for the disk usage of these layers, and of those that are being unpacked into them;
  /// answers appear in the snapshot as `unpacked_bytes`. Known and unknown ones are skipped.
  void measure(const std::vector<Digest>& chain_ids);

 private:
  enum class Part { Images, Blobs, Snapshots, Leases, Ingests };
  static constexpr std::size_t kParts = 5;

  struct Slot {
    std::unique_ptr<GrpcCall> call;
    bool again = false;   // something happened while it ran
    bool listed = false;  // since the connection was made
    bool dirty = false;   // not yet in the caller's snapshot
  };

  [[nodiscard]] Slot& slot(Part part) { return slots_[static_cast<std::size_t>(part)]; }

  void connect();
  void disconnect(const Error& error);
  void list(Part part);
  void start_list(Part part);
  void list_all();
  template <typename T>
  [[nodiscard]] std::function<void(Result<T>)> receiver(Part part, void (RuntimeProbe::*take)(T));
  void listed(Part part, std::optional<Error> error);
  void take_images(std::vector<LocalImage> images);
  void take_blobs(wire::BlobList list);
  void take_snapshots(wire::SnapshotList list);
  void take_leases(std::vector<PullLease> leases);
  void take_ingests(std::vector<Ingest> ingests);

  void on_event(const wire::ContainerdEvent& event);
  void on_snapshot_event(const wire::ContainerdEvent& event);
  void ask_blob(const Digest& digest);
  void ask_next_blob();
  void ask_next_lease();
  void take_resources(const std::string& id, Result<wire::LeaseResources> resources);
  void measure_next();
  void take_usage(const Digest& chain_id, bool extract, Result<wire::SnapshotUsage> usage);

  void poll();
  void moved();
  void mark(Part part);
  void changed_soon();
  void answer_waiters();
  [[nodiscard]] bool polling_wanted() const;

  EventLoop& loop_;
  Containerd& containerd_;
  std::function<void()> changed_;

  // What is known. `ready_` = every part was listed since the connection was made.
  RuntimeState state_;
  std::vector<wire::ExtractKey> extract_keys_;  // sorted by chain ID, then key
  std::vector<wire::ContentLinks> links_;       // sorted by digest
  bool connected_ = false;
  bool ready_ = false;
  bool known_ = false;  // the state may be shown: ready, or lost only just now
  std::string error_ = "not asked yet";
  MonotonicTime lost_at_{};
  MonotonicTime observed_at_{};
  MonotonicTime polled_at_{};
  MonotonicTime moved_at_{};
  MonotonicTime changed_at_{};
  Duration back_off_{};
  bool watchful_ = false;

  std::array<Slot, kParts> slots_;
  std::unique_ptr<GrpcCall> events_;
  std::unique_ptr<GrpcCall> version_;
  std::unique_ptr<GrpcCall> blob_call_;
  std::unique_ptr<GrpcCall> lease_call_;
  std::unique_ptr<GrpcCall> usage_call_;
  std::set<Digest> blobs_to_ask_;
  std::deque<std::string> leases_to_ask_;
  std::map<std::string, MonotonicTime> lease_seen_at_;
  std::deque<Digest> to_measure_;
  std::vector<std::function<void()>> waiters_;

  std::unique_ptr<Timer> retry_timer_;
  std::unique_ptr<Timer> poll_timer_;
  std::unique_ptr<Timer> relist_timer_;
  std::unique_ptr<Timer> collected_timer_;
  std::unique_ptr<Timer> images_timer_;
  std::unique_ptr<Timer> lost_timer_;
  std::unique_ptr<Timer> changed_timer_;
  int collected_rounds_ = 0;
};

}  // namespace imagefs_guard
