#pragma once
/// containerd's native services as typed calls: what probes, holds and actions ask of it.
/// Each call gives its answer once, from the loop; destroying the returned call cancels it. No
/// retries. "Already gone" (NotFound) is success where something is deleted.

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "agent/core/digest.h"
#include "agent/core/node_snapshot.h"
#include "agent/core/result.h"
#include "agent/core/time.h"
#include "agent/io/grpc.h"
#include "agent/wire/containerd.h"

namespace imagefs_guard {

/// Manifests and configs are refused above this: containerd itself reads no larger ones.
constexpr std::size_t kSmallBlobLimit = 4'393'216;

class Containerd {
 public:
  template <typename T>
  using Done = std::function<void(Result<T>)>;
  using Call = std::unique_ptr<GrpcCall>;

  /// `client` must send the namespace "k8s.io", and outlive this and all calls.
  Containerd(GrpcClient& client, std::string snapshotter);

  [[nodiscard]] const std::string& snapshotter() const { return snapshotter_; }

  /// For the calls from now on.
  void set_snapshotter(std::string snapshotter) { snapshotter_ = std::move(snapshotter); }

  [[nodiscard]] Call version(Done<std::string> done);

  // Lists are sorted by their first member.
  [[nodiscard]] Call list_images(Done<std::vector<LocalImage>> done);
  [[nodiscard]] Call list_blobs(Done<wire::BlobList> done);
  [[nodiscard]] Call list_snapshots(Done<wire::SnapshotList> done);
  [[nodiscard]] Call list_ingests(Done<std::vector<Ingest>> done);
  /// Leases that expire, without what they protect.
  [[nodiscard]] Call list_leases(Done<std::vector<PullLease>> done);
  [[nodiscard]] Call list_lease_resources(const std::string& lease_id,
                                          Done<wire::LeaseResources> done);

  [[nodiscard]] Call ingest_status(const std::string& ref, Done<Ingest> done);
  [[nodiscard]] Call blob_info(const Digest& digest, Done<LocalBlob> done);
  /// The whole blob, at most kSmallBlobLimit bytes (ResourceExhausted). The caller checks the
  /// digest.
  [[nodiscard]] Call read_blob(const Digest& digest, Done<std::string> done);
  /// Usage of a committed layer (cached by containerd) or of an active one (a walk through its
  /// directory).
  [[nodiscard]] Call snapshot_usage(std::string_view key, Done<wire::SnapshotUsage> done);

  /// CRI's RemoveImage on the same socket: all names of the image; its bytes are back when the
  /// answer comes. `image`: name or ID.
  [[nodiscard]] Call remove_image(const std::string& image, Done<void> done);
  [[nodiscard]] Call delete_lease(const std::string& lease_id, Done<void> done);
  [[nodiscard]] Call abort_ingest(const std::string& ref, Done<void> done);
  [[nodiscard]] Call prepare_snapshot(std::string_view key, Done<void> done);
  [[nodiscard]] Call remove_snapshot(std::string_view key, Done<void> done);
  /// Prepares and removes a snapshot of our own: a removal makes containerd drop directories that
  /// belong to no snapshot, as a pull leaves them that was cancelled while it unpacked.
  [[nodiscard]] Call drop_orphan_directories(Done<void> done);
  /// Makes containerd drop files that belong to no blob, as a pull leaves them whose lease went
  /// while it downloaded. It looks for them only in a garbage collection after the deletion of a
  /// blob: so a blob of our own (28 bytes) is written and deleted, and then a lease of our own,
  /// which is the one thing that starts a collection at once.
  [[nodiscard]] Call drop_orphan_files(Done<void> done);

  /// Events of images, snapshots and content until the stream ends (`done`).
  [[nodiscard]] Call subscribe(std::function<void(const wire::ContainerdEvent&)> on_event,
                               std::function<void(Result<void>)> done);

  /// Locks the ref (see hold.h). `on_held` gets what the ingest has; `done` is the end of the
  /// stream or the refusal.
  [[nodiscard]] Call open_write(const std::string& ref,
                                const Digest& expected,
                                std::function<void(Result<wire::WriteStatus>)> on_held,
                                std::function<void(Result<void>)> done);

 private:
  struct Step {
    const char* method;
    std::string request;
  };

  template <typename T>
  [[nodiscard]] Call unary(const char* method,
                           std::string request,
                           Result<T> (*decode)(std::string_view),
                           Done<T> done);
  [[nodiscard]] Call command(const char* method, std::string request, Done<void> done);
  /// Commands one after the other, each into `current`. What is there already (AlreadyExists) is
  /// as good as created.
  void run_steps(Call& current, std::vector<Step> steps, Done<void> done);
  template <typename T>
  [[nodiscard]] Call list(const char* method,
                          std::string request,
                          Result<void> (*decode)(std::string_view, T&),
                          std::function<void(Result<T>)> done);

  GrpcClient& client_;
  std::string snapshotter_;
};

}  // namespace imagefs_guard
