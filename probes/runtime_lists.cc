// untested: runtime_test.cc has its cases.
#include "probes/runtime_lists.h"

#include <algorithm>
#include <functional>
#include <iterator>

namespace imagefs_guard {

namespace {

template <typename List, typename Key, typename Member>
auto find_sorted(List& list, const Key& key, Member member) {
  const auto found = std::ranges::lower_bound(list, key, {}, member);
  return found != list.end() && std::invoke(member, *found) == key ? found : list.end();
}

}  // namespace

std::vector<Digest> ended_downloads(const std::vector<Ingest>& before,
                                    const std::vector<Ingest>& now) {
  std::vector<Digest> ended;
  for (const Ingest& ingest : before) {
    if (find_sorted(now, ingest.ref, &Ingest::ref) == now.end()) {
      if (const std::optional<Digest> digest = digest_of_ref(ingest.ref)) {
        ended.push_back(*digest);
      }
    }
  }
  return ended;
}

bool downloads_moved(const std::vector<Ingest>& before, const std::vector<Ingest>& now) {
  const auto started = [](const std::vector<Ingest>& list) {
    std::vector<Ingest> running;
    std::ranges::copy_if(list, std::back_inserter(running), [](const Ingest& ingest) {
      return ingest.offset_bytes > 0;
    });
    return running;
  };
  return started(before) != started(now);
}

bool insert_blob(std::vector<LocalBlob>& blobs, const LocalBlob& blob) {
  const auto at = std::ranges::lower_bound(blobs, blob.digest, {}, &LocalBlob::digest);
  if (at != blobs.end() && at->digest == blob.digest) {
    return false;
  }
  blobs.insert(at, blob);
  return true;
}

bool erase_blob(std::vector<LocalBlob>& blobs, const Digest& digest) {
  const auto at = find_sorted(blobs, digest, &LocalBlob::digest);
  if (at == blobs.end()) {
    return false;
  }
  blobs.erase(at);
  return true;
}

bool insert_snapshot(std::vector<LayerSnapshot>& snapshots, const LayerSnapshot& snapshot) {
  const auto at =
      std::ranges::lower_bound(snapshots, snapshot.chain_id, {}, &LayerSnapshot::chain_id);
  if (at != snapshots.end() && at->chain_id == snapshot.chain_id) {
    return false;
  }
  snapshots.insert(at, snapshot);
  return true;
}

bool insert_chain(std::vector<Digest>& chains, const Digest& chain_id) {
  const auto at = std::ranges::lower_bound(chains, chain_id);
  if (at != chains.end() && *at == chain_id) {
    return false;
  }
  chains.insert(at, chain_id);
  return true;
}

bool erase_snapshot(std::vector<LayerSnapshot>& snapshots, const Digest& chain_id) {
  const auto at = find_sorted(snapshots, chain_id, &LayerSnapshot::chain_id);
  if (at == snapshots.end()) {
    return false;
  }
  snapshots.erase(at);
  return true;
}

std::vector<LayerSnapshot> with_known_usage(std::vector<LayerSnapshot> listed,
                                            const std::vector<LayerSnapshot>& known) {
  auto at = known.begin();
  for (LayerSnapshot& snapshot : listed) {
    while (at != known.end() && at->chain_id < snapshot.chain_id) {
      ++at;
    }
    if (at != known.end() && at->chain_id == snapshot.chain_id) {
      snapshot.unpacked_bytes = at->unpacked_bytes;
      snapshot.inodes = at->inodes;
    }
  }
  return listed;
}

void link_images(std::vector<LocalImage>& images,
                 const std::vector<wire::ContentLinks>& links,
                 std::string_view snapshotter) {
  const auto find = [&](const Digest& digest) {
    const auto found = find_sorted(links, digest, &wire::ContentLinks::digest);
    return found == links.end() ? nullptr : &*found;
  };
  const auto take_manifest = [&](LocalImage& image, const wire::ContentLinks* manifest) {
    const wire::ContentLinks* config =
        manifest == nullptr || manifest->config.is_zero() ? nullptr : find(manifest->config);
    if (config != nullptr && !config->top_chain.is_zero() && config->snapshotter == snapshotter) {
      image.image_id = manifest->config;
      image.top_chain = config->top_chain;
    }
  };
  for (LocalImage& image : images) {
    image.image_id = Digest{};
    image.top_chain = Digest{};
    const wire::ContentLinks* target = find(image.target);
    if (target == nullptr) {
      continue;
    }
    take_manifest(image, target);
    for (const Digest& manifest : target->manifests) {
      take_manifest(image, find(manifest));
    }
  }
}

bool has_unlinked(const std::vector<LocalImage>& images) {
  return std::ranges::any_of(images,
                             [](const LocalImage& image) { return image.image_id.is_zero(); });
}

std::vector<ActiveExtract> extracts_of(const std::vector<wire::ExtractKey>& keys,
                                       const std::vector<ActiveExtract>& known) {
  std::vector<ActiveExtract> extracts;
  for (const wire::ExtractKey& key : keys) {
    if (!extracts.empty() && extracts.back().chain_id == key.chain_id) {
      continue;
    }
    const auto found = find_sorted(known, key.chain_id, &ActiveExtract::chain_id);
    extracts.push_back(found != known.end() ? *found : ActiveExtract{.chain_id = key.chain_id});
  }
  return extracts;
}

void carry_resources(std::vector<PullLease>& leases, const std::vector<PullLease>& known) {
  for (PullLease& lease : leases) {
    const auto found = find_sorted(known, lease.id, &PullLease::id);
    if (found != known.end()) {
      lease.content = found->content;
      lease.ingest_refs = found->ingest_refs;
    }
  }
}

}  // namespace imagefs_guard
