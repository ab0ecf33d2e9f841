#include "agent/runtime/containerd.h"

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

#include "agent/core/sha256.h"
#include "agent/wire/cri.h"

namespace imagefs_guard {

namespace {

// A node under I/O pressure answers slowly; what takes longer is as good as unreachable.
constexpr std::chrono::seconds kCallDeadline{5};
// 20,000 snapshots take containerd some 0.2 s; garbage collection may hold its lock for longer.
constexpr std::chrono::seconds kListDeadline{30};
// It waits for garbage collection to delete every file of the image.
constexpr std::chrono::seconds kRemoveDeadline{120};
// Its own name, so that it can be found should the removal not have come.
constexpr std::string_view kOrphanKey = "imagefs-guard-drop-orphans";
constexpr std::string_view kOrphanBlob = "imagefs-guard drops orphans\n";

template <typename T>
Result<T> ended(T value, const std::optional<Error>& error, Result<void> end) {
  if (error) {
    return *error;
  }
  if (!end) {
    return std::move(end).error();
  }
  return value;
}

bool by_name(const LocalImage& a, const LocalImage& b) {
  return std::tie(a.name, a.target) < std::tie(b.name, b.target);
}

bool by_digest(const LocalBlob& a, const LocalBlob& b) {
  return a.digest < b.digest;
}

bool by_ref(const Ingest& a, const Ingest& b) {
  return a.ref < b.ref;
}

bool by_id(const PullLease& a, const PullLease& b) {
  return a.id < b.id;
}

bool by_chain_id(const wire::ExtractKey& a, const wire::ExtractKey& b) {
  return std::tie(a.chain_id, a.key) < std::tie(b.chain_id, b.key);
}

/// Calls `done` with the list in order.
template <typename T, typename Less>
std::function<void(Result<std::vector<T>>)> sorted(std::function<void(Result<std::vector<T>>)> done,
                                                   Less less) {
  return [done = std::move(done), less](Result<std::vector<T>> result) {
    if (result) {
      std::sort(result->begin(), result->end(), less);
    }
    done(std::move(result));
  };
}

Result<void> append_piece(std::string_view message, std::string& blob) {
  const std::string_view data = TRY(wire::decode_read_data(message));
  if (data.size() > kSmallBlobLimit - blob.size()) {
    return Error{ErrorKind::ResourceExhausted, "blob longer than its length"};
  }
  blob.append(data);
  return {};
}

/// Two calls, one after the other, as one: destroying it cancels whichever runs.
struct CallChain final : GrpcCall {
  std::unique_ptr<GrpcCall> current;
};

}  // namespace

Containerd::Containerd(GrpcClient& client, std::string snapshotter)
    : client_(client), snapshotter_(std::move(snapshotter)) {}

template <typename T>
Containerd::Call Containerd::unary(const char* method,
                                   std::string request,
                                   Result<T> (*decode)(std::string_view),
                                   Done<T> done) {
  return client_.unary(method,
                       std::move(request),
                       kCallDeadline,
                       [decode, done = std::move(done)](Result<std::string> reply) {
                         if (!reply) {
                           done(std::move(reply).error());
                         } else {
                           done(decode(*reply));
                         }
                       });
}

Containerd::Call Containerd::command(const char* method, std::string request, Done<void> done) {
  return client_.unary(method,
                       std::move(request),
                       kCallDeadline,
                       [done = std::move(done)](Result<std::string> reply) {
                         if (!reply && reply.error().kind != ErrorKind::NotFound) {
                           done(std::move(reply).error());
                         } else {
                           done({});
                         }
                       });
}

template <typename T>
Containerd::Call Containerd::list(const char* method,
                                  std::string request,
                                  Result<void> (*decode)(std::string_view, T&),
                                  std::function<void(Result<T>)> done) {
  struct State {
    T value;
    std::optional<Error> error;
  };

  auto state = std::make_shared<State>();
  return client_.server_stream(
      method,
      std::move(request),
      kListDeadline,
      [state, decode](std::string_view message) {
        if (!state->error) {
          Result<void> decoded = decode(message, state->value);
          if (!decoded) {
            state->error = std::move(decoded).error();
          }
        }
      },
      [state, done = std::move(done)](Result<void> end) {
        done(ended(std::move(state->value), state->error, std::move(end)));
      });
}

Containerd::Call Containerd::version(Done<std::string> done) {
  return unary<std::string>(
      "/containerd.services.version.v1.Version/Version", "", wire::decode_version, std::move(done));
}

Containerd::Call Containerd::list_images(Done<std::vector<LocalImage>> done) {
  return list<std::vector<LocalImage>>("/containerd.services.images.v1.Images/List",
                                       "",
                                       wire::decode_images,
                                       sorted<LocalImage>(std::move(done), by_name));
}

Containerd::Call Containerd::list_blobs(Done<wire::BlobList> done) {
  return list<wire::BlobList>("/containerd.services.content.v1.Content/List",
                              "",
                              wire::decode_blobs,
                              [done = std::move(done)](Result<wire::BlobList> result) {
                                if (result) {
                                  std::ranges::sort(result->blobs, by_digest);
                                  std::ranges::sort(result->links, {}, &wire::ContentLinks::digest);
                                }
                                done(std::move(result));
                              });
}

Containerd::Call Containerd::list_snapshots(Done<wire::SnapshotList> done) {
  return list<wire::SnapshotList>(
      "/containerd.services.snapshots.v1.Snapshots/List",
      wire::encode_list_snapshots(snapshotter_),
      wire::decode_snapshots,
      [done = std::move(done)](Result<wire::SnapshotList> result) {
        if (result) {
          std::ranges::sort(result->layers, {}, &LayerSnapshot::chain_id);
          std::ranges::sort(result->used_chains);
          std::vector<Digest>& used = result->used_chains;  // clang 14 can't ranges::unique
          used.erase(std::unique(used.begin(), used.end()), used.end());
          std::sort(result->extracts.begin(), result->extracts.end(), by_chain_id);
        }
        done(std::move(result));
      });
}

Containerd::Call Containerd::list_ingests(Done<std::vector<Ingest>> done) {
  return list<std::vector<Ingest>>("/containerd.services.content.v1.Content/ListStatuses",
                                   "",
                                   wire::decode_ingests,
                                   sorted<Ingest>(std::move(done), by_ref));
}

Containerd::Call Containerd::list_leases(Done<std::vector<PullLease>> done) {
  return list<std::vector<PullLease>>("/containerd.services.leases.v1.Leases/List",
                                      "",
                                      wire::decode_leases,
                                      sorted<PullLease>(std::move(done), by_id));
}

Containerd::Call Containerd::list_lease_resources(const std::string& lease_id,
                                                  Done<wire::LeaseResources> done) {
  return unary<wire::LeaseResources>("/containerd.services.leases.v1.Leases/ListResources",
                                     wire::encode_one_string(lease_id),
                                     wire::decode_lease_resources,
                                     std::move(done));
}

Containerd::Call Containerd::ingest_status(const std::string& ref, Done<Ingest> done) {
  return unary<Ingest>("/containerd.services.content.v1.Content/Status",
                       wire::encode_one_string(ref),
                       wire::decode_ingest_status,
                       std::move(done));
}

Containerd::Call Containerd::blob_info(const Digest& digest, Done<LocalBlob> done) {
  return unary<LocalBlob>("/containerd.services.content.v1.Content/Info",
                          wire::encode_one_string(to_string(digest)),
                          wire::decode_blob_info,
                          std::move(done));
}

Containerd::Call Containerd::read_blob(const Digest& digest, Done<std::string> done) {
  // Its length first: containerd refuses to read past the end, and sends all of a large one.
  auto chain = std::make_unique<CallChain>();
  chain->current = blob_info(
      digest, [this, raw = chain.get(), digest, done = std::move(done)](Result<LocalBlob> info) {
        if (!info) {
          done(std::move(info).error());
        } else if (info->bytes > static_cast<std::int64_t>(kSmallBlobLimit)) {
          done(Error{ErrorKind::ResourceExhausted,
                     "blob of " + std::to_string(info->bytes) + " bytes, limit " +
                         std::to_string(kSmallBlobLimit)});
        } else {
          raw->current = list<std::string>("/containerd.services.content.v1.Content/Read",
                                           wire::encode_read({.digest = digest}),
                                           append_piece,
                                           done);
        }
      });
  return chain;
}

Containerd::Call Containerd::snapshot_usage(std::string_view key, Done<wire::SnapshotUsage> done) {
  return unary<wire::SnapshotUsage>(
      "/containerd.services.snapshots.v1.Snapshots/Usage",
      wire::encode_snapshot_key({.snapshotter = snapshotter_, .key = key}),
      wire::decode_usage,
      std::move(done));
}

Containerd::Call Containerd::delete_lease(const std::string& lease_id, Done<void> done) {
  return command("/containerd.services.leases.v1.Leases/Delete",
                 wire::encode_delete_lease(lease_id, /* synchronous= */ false),
                 std::move(done));
}

Containerd::Call Containerd::remove_image(const std::string& image, Done<void> done) {
  return client_.unary("/runtime.v1.ImageService/RemoveImage",
                       wire::encode_image_spec_request(image),
                       kRemoveDeadline,
                       [done = std::move(done)](Result<std::string> reply) {
                         if (!reply && reply.error().kind != ErrorKind::NotFound) {
                           done(std::move(reply).error());
                         } else {
                           done({});
                         }
                       });
}

Containerd::Call Containerd::abort_ingest(const std::string& ref, Done<void> done) {
  return command("/containerd.services.content.v1.Content/Abort",
                 wire::encode_one_string(ref),
                 std::move(done));
}

Containerd::Call Containerd::prepare_snapshot(std::string_view key, Done<void> done) {
  return command("/containerd.services.snapshots.v1.Snapshots/Prepare",
                 wire::encode_prepare({.snapshotter = snapshotter_, .key = key}),
                 std::move(done));
}

Containerd::Call Containerd::remove_snapshot(std::string_view key, Done<void> done) {
  return command("/containerd.services.snapshots.v1.Snapshots/Remove",
                 wire::encode_snapshot_key({.snapshotter = snapshotter_, .key = key}),
                 std::move(done));
}

void Containerd::run_steps(Call& current, std::vector<Step> steps, Done<void> done) {
  Step step = std::move(steps.front());
  steps.erase(steps.begin());
  current = command(step.method,
                    std::move(step.request),
                    [this, &current, steps = std::move(steps), done = std::move(done)](
                        Result<void> result) mutable {
                      const bool good = result || result.error().kind == ErrorKind::AlreadyExists;
                      if (good && !steps.empty()) {
                        run_steps(current, std::move(steps), std::move(done));
                      } else {
                        done(good ? Result<void>() : std::move(result));
                      }
                    });
}

Containerd::Call Containerd::drop_orphan_directories(Done<void> done) {
  auto chain = std::make_unique<CallChain>();
  run_steps(chain->current,
            {{"/containerd.services.snapshots.v1.Snapshots/Prepare",
              wire::encode_prepare({.snapshotter = snapshotter_, .key = kOrphanKey})},
             {"/containerd.services.snapshots.v1.Snapshots/Remove",
              wire::encode_snapshot_key({.snapshotter = snapshotter_, .key = kOrphanKey})}},
            std::move(done));
  return chain;
}

Containerd::Call Containerd::drop_orphan_files(Done<void> done) {
  const Digest digest = sha256(kOrphanBlob);
  auto chain = std::make_unique<CallChain>();
  run_steps(
      chain->current,
      {{"/containerd.services.content.v1.Content/Write",
        wire::encode_write_blob(kOrphanKey, digest, kOrphanBlob)},
       {"/containerd.services.content.v1.Content/Delete",
        wire::encode_one_string(to_string(digest))},
       {"/containerd.services.leases.v1.Leases/Create", wire::encode_create_lease(kOrphanKey)},
       {"/containerd.services.leases.v1.Leases/Delete",
        wire::encode_delete_lease(kOrphanKey, /* synchronous= */ true)}},
      std::move(done));
  return chain;
}

Containerd::Call Containerd::subscribe(std::function<void(const wire::ContainerdEvent&)> on_event,
                                       std::function<void(Result<void>)> done) {
  // The namespace in the header does not filter; and tasks' events are frequent.
  return client_.server_stream(
      "/containerd.services.events.v1.Events/Subscribe",
      wire::encode_subscribe("namespace==k8s.io,topic~=\"^/(images|snapshot|content)/\""),
      Duration{0},
      [on_event = std::move(on_event)](std::string_view message) {
        // What can't be read is made up for by the next full list.
        if (const Result<wire::ContainerdEvent> event = wire::decode_event(message)) {
          on_event(*event);
        }
      },
      std::move(done));
}

Containerd::Call Containerd::open_write(const std::string& ref,
                                        const Digest& expected,
                                        std::function<void(Result<wire::WriteStatus>)> on_held,
                                        std::function<void(Result<void>)> done) {
  return client_.open_stream(
      "/containerd.services.content.v1.Content/Write",
      wire::encode_write_stat(ref, expected),
      [on_held = std::move(on_held)](std::string_view message) {
        on_held(wire::decode_write_status(message));
      },
      std::move(done));
}

}  // namespace imagefs_guard
