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
bool insert_snapshot(std::vector<LayerSnapshot>& snapshots, const Digest& chain_id);
bool erase_snapshot(std::vector<LayerSnapshot>& snapshots, const Digest& chain_id);

/// Snapshots for these chain IDs (sorted), with the usage that was known already.
[[nodiscard]] std::vector<LayerSnapshot> with_known_usage(const std::vector<Digest>& chain_ids,
                                                          const std::vector<LayerSnapshot>& known);

/// Extracts for these keys, one per chain ID.
[[nodiscard]] std::vector<ActiveExtract> extracts_of(const std::vector<wire::ExtractKey>& keys,
                                                     const std::vector<ActiveExtract>& known);

/// New leases with the resources that were known already.
void carry_resources(std::vector<PullLease>& leases, const std::vector<PullLease>& known);

}  // namespace imagefs_guard
