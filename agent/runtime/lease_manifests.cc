// untested: reads a real content store; no test of its own yet.
#include "agent/runtime/lease_manifests.h"

#include <algorithm>
#include <utility>

#include "agent/core/sha256.h"

namespace imagefs_guard {

namespace {

/// Blobs examined and remembered, and waiting: beyond it the set is begun anew, which only means
/// that something is read twice.
constexpr std::size_t kExaminedMaximum = 4096;
constexpr std::size_t kQueueMaximum = 256;

bool is_digest_of(const Digest& digest, std::string_view bytes) {
  return sha256(bytes) == digest;
}

}  // namespace

LeaseManifests::LeaseManifests(Containerd& containerd, Found found)
    : containerd_(containerd), found_(std::move(found)) {}

void LeaseManifests::remember(const Digest& digest) {
  if (examined_.size() >= kExaminedMaximum) {
    examined_.clear();
  }
  examined_.insert(digest);
}

void LeaseManifests::look(const NodeSnapshot& snapshot,
                          const std::function<bool(const Digest&)>& is_known) {
  if (!snapshot.runtime.has_value()) {
    return;
  }
  for (const PullLease& lease : snapshot.runtime->leases) {
    for (const Digest& digest : lease.content) {
      const auto& blobs = snapshot.runtime->blobs;
      const auto blob = std::ranges::lower_bound(blobs, digest, {}, &LocalBlob::digest);
      const bool small = blob != blobs.end() && blob->digest == digest &&
                         blob->bytes <= static_cast<std::int64_t>(kManifestBytesLimit);
      if (!small || examined_.contains(digest) || is_known(digest) ||
          queue_.size() >= kQueueMaximum) {
        continue;
      }
      remember(digest);
      queue_.push_back(digest);
    }
  }
  next();
}

void LeaseManifests::next() {
  if (call_ != nullptr || queue_.empty()) {
    return;
  }
  const Digest digest = queue_.front();
  queue_.pop_front();
  call_ = containerd_.read_blob(digest, [this, digest](Result<std::string> blob) {
    const auto finished = std::move(call_);
    on_blob(digest, std::move(blob));
  });
}

void LeaseManifests::on_blob(const Digest& digest, Result<std::string> blob) {
  if (!blob || !is_digest_of(digest, *blob)) {
    next();  // gone in between, or not readable: the pull stays unknown
    return;
  }
  const auto parsed =
      parse_manifest({.bytes = *blob, .content_type = {}, .digest = digest}, build_platform());
  if (!parsed || !parsed->manifest.has_value()) {
    next();  // a config, a layer, an index: nothing to learn
    return;
  }
  ImageManifest manifest = parsed->manifest->image;
  const Digest config = manifest.config_digest;
  call_ = containerd_.read_blob(
      config, [this, manifest = std::move(manifest)](Result<std::string> bytes) mutable {
        const auto finished = std::move(call_);
        on_config(std::move(manifest), std::move(bytes));
      });
}

void LeaseManifests::on_config(ImageManifest manifest, Result<std::string> blob) {
  if (!blob || !is_digest_of(manifest.config_digest, *blob)) {
    examined_.erase(manifest.manifest_digest);  // the config comes a moment later: look again
    next();
    return;
  }
  const auto config = parse_image_config(*blob);
  if (config && add_config(*config, manifest)) {
    found_(std::move(manifest));
  }
  next();
}

}  // namespace imagefs_guard
