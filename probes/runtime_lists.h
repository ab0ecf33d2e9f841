#pragma once
/// How the lists of a RuntimeState are kept up to date between full listings, pure: the part of
/// probes/runtime that can be tested without time. All vectors stay sorted.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/core/node_snapshot.h"
#include "agent/wire/containerd.h"

namespace imagefs_guard {

/// Blobs of ingests that were there before and are not now: complete, or given up.
[[nodiscard]] std::vector<Digest> ended_downloads(const std::vector<Ingest>& before,
                                                  const std::vector<Ingest>& now);

/// True if a byte arrived or a download began or ended; an empty ingest alone is no activity, since
/// a hold's stays for as long as the hold.
[[nodiscard]] bool downloads_moved(const std::vector<Ingest>& before,
                                   const std::vector<Ingest>& now);

/// Each returns whether anything changed.
bool insert_blob(std::vector<LocalBlob>& blobs, const LocalBlob& blob);
bool erase_blob(std::vector<LocalBlob>& blobs, const Digest& digest);
bool insert_snapshot(std::vector<LayerSnapshot>& snapshots, const LayerSnapshot& snapshot);
bool insert_chain(std::vector<Digest>& chains, const Digest& chain_id);
bool erase_snapshot(std::vector<LayerSnapshot>& snapshots, const Digest& chain_id);

/// Snapshots as listed (sorted), with the usage that was known already.
[[nodiscard]] std::vector<LayerSnapshot> with_known_usage(std::vector<LayerSnapshot> listed,
                                                          const std::vector<LayerSnapshot>& known);

/// Gives each image its ID and its topmost layer, by what index, manifest and config name. Of a
/// many-platform index the one image counts that is unpacked in this snapshotter.
void link_images(std::vector<LocalImage>& images,
                 const std::vector<wire::ContentLinks>& links,
                 std::string_view snapshotter);

/// Whether there is an image of which that is not known.
[[nodiscard]] bool has_unlinked(const std::vector<LocalImage>& images);

/// Extracts for these keys, one per chain ID.
[[nodiscard]] std::vector<ActiveExtract> extracts_of(const std::vector<wire::ExtractKey>& keys,
                                                     const std::vector<ActiveExtract>& known);

/// New leases with the resources that were known already.
void carry_resources(std::vector<PullLease>& leases, const std::vector<PullLease>& known);

}  // namespace imagefs_guard
