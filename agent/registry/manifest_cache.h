#pragma once
/// What digests have turned out to be: indexes and manifests by their digest, which never change.
/// Bounded: what has not been used for longest goes first. Filled by the client and from the
/// node's content store; read when a snapshot is assembled.

#include <cstddef>
#include <map>
#include <vector>

#include "agent/core/digest.h"
#include "agent/core/time.h"
#include "agent/wire/manifest.h"

namespace imagefs_guard {

struct CachedManifest {
  ParsedManifest parsed;
  bool complete = false;  // the config has been read: chain IDs are there
  MonotonicTime used_at{};
};

class ManifestCache {
 public:
  /// nullptr if unknown. Valid until the next change.
  [[nodiscard]] const CachedManifest* find(const Digest& digest) const;
  [[nodiscard]] const ImageIndex* find_index(const Digest& digest) const;

  /// A complete one is never replaced by one without its config.
  void add(ParsedManifest parsed, bool complete, MonotonicTime now);
  void add_index(const Digest& digest, ImageIndex index);

  /// Used at that time, if not later.
  void touch(const Digest& digest, MonotonicTime time);
  /// The manifest is (also) what this index names.
  void set_index(const Digest& digest, const Digest& index_digest);
  void drop_unused_since(MonotonicTime time);

  [[nodiscard]] const std::map<Digest, CachedManifest>& manifests() const { return manifests_; }

  /// Grows with every change that a reader of manifests() would see.
  [[nodiscard]] std::size_t version() const { return version_; }

 private:
  void keep_within_limits();

  std::map<Digest, CachedManifest> manifests_;
  std::map<Digest, ImageIndex> indexes_;
  std::size_t layers_ = 0;
  std::size_t version_ = 0;
};

}  // namespace imagefs_guard
