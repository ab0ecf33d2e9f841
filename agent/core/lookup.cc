// untested: every case of the planner goes through these.
#include "agent/core/lookup.h"

#include <algorithm>

namespace imagefs_guard {

const ResolvedImage* find_resolution(const NodeSnapshot& snapshot, const std::string& image) {
  const auto found = std::ranges::lower_bound(snapshot.resolved, image, {}, &ResolvedImage::image);
  return found != snapshot.resolved.end() && found->image == image ? &*found : nullptr;
}

const ImageManifest* find_manifest(const NodeSnapshot& snapshot, const Digest& manifest_digest) {
  const auto found = std::ranges::lower_bound(
      snapshot.manifests, manifest_digest, {}, &ImageManifest::manifest_digest);
  return found != snapshot.manifests.end() && found->manifest_digest == manifest_digest ? &*found
                                                                                        : nullptr;
}

const ImageManifest* find_manifest(const NodeSnapshot& snapshot, const ResolvedImage* resolution) {
  return resolution != nullptr && resolution->manifest_digest.has_value()
             ? find_manifest(snapshot, *resolution->manifest_digest)
             : nullptr;
}

const Pod* find_pod(const NodeSnapshot& snapshot, const std::string& key) {
  const std::size_t slash = key.find('/');
  const auto found = std::ranges::find_if(*snapshot.pods, [&](const Pod& pod) {
    return key.compare(0, slash, pod.namespace_name) == 0 && slash != std::string::npos &&
           key.compare(slash + 1, std::string::npos, pod.name) == 0;
  });
  return found != snapshot.pods->end() ? &*found : nullptr;
}

bool is_sandbox_image(std::string_view name) {
  const std::string_view last = name.substr(name.rfind('/') + 1);
  return last.substr(0, last.find_first_of(":@")) == "pause";
}

}  // namespace imagefs_guard
