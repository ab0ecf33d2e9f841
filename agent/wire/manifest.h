#pragma once
/// OCI and Docker images as bytes to core's ImageManifest: index → platform manifest → config.
/// Used by registry/ for what a registry sends and by runtime/ for what the content store holds;
/// pure, bounded. The caller has checked the digest of every body before it comes here.

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/core/digest.h"
#include "agent/core/node_snapshot.h"
#include "agent/core/result.h"

namespace imagefs_guard {

/// containerd's own limit: 4 * 1048 * 1048. Larger manifests can't be pulled anyway.
constexpr std::size_t kManifestBytesLimit = 4'393'216;
/// Configs have no limit of their own; history and labels stay far below this.
constexpr std::size_t kConfigBytesLimit = std::size_t{8} << 20;
/// overlayfs mounts about 500 lower directories at most; 1,000 and more have been seen in the wild.
constexpr std::size_t kLayerLimit = 10'000;
constexpr std::size_t kIndexEntryLimit = 1'000;
/// An index may name an index; more than this is no image.
constexpr int kIndexDepthLimit = 3;

/// What the Accept header must list: without it some registries answer 404 for OCI manifests.
constexpr std::string_view kManifestAccept =
    "application/vnd.oci.image.manifest.v1+json, application/vnd.oci.image.index.v1+json, "
    "application/vnd.docker.distribution.manifest.v2+json, "
    "application/vnd.docker.distribution.manifest.list.v2+json";

struct Platform {
  std::string os = "linux";
  std::string architecture;
  std::string variant;

  bool operator==(const Platform&) const = default;
};

/// The platform that this binary runs on.
[[nodiscard]] Platform build_platform();

/// Rank of `candidate` on a node of `node`, as containerd's platforms.Only(): 0 is best, nullopt
/// can't run there.
[[nodiscard]] std::optional<std::size_t> platform_rank(const Platform& node,
                                                       const Platform& candidate);

// ---- index -----------------------------------------------------------------------------------

struct IndexEntry {
  Digest digest;
  std::int64_t bytes = 0;
  std::optional<Platform> platform;  // none: the config says

  bool operator==(const IndexEntry&) const = default;
};

/// Entries that can be images for this node, best first: foreign platforms, attestations and
/// unknown media types are left out; entries without a platform stand last.
struct ImageIndex {
  std::vector<IndexEntry> entries;
  /// "windows/amd64, linux/s390x": what there is, for the message when nothing fits.
  std::string platforms;

  bool operator==(const ImageIndex&) const = default;
};

// ---- platform manifest -------------------------------------------------------------------------

/// Where a layer's own table of contents is, as its annotations say. Hints: not checked.
struct LayerHints {
  std::string ref_name;               // containerd's ingest ref is "layer-<ref_name>@<digest>" then
  std::string stargz_toc_digest;      // eStargz
  std::string zstd_chunked_position;  // "<offset>:<length>:<uncompressed length>:<type>"
  std::string zstd_chunked_checksum;
  bool zstd_chunked_legacy_footer = false;  // the 40-byte footer of io.containers.*

  bool operator==(const LayerHints&) const = default;
};

/// A platform manifest. Until the config has been added, `image.layers` have no diff and chain
/// IDs: complete enough to hold the pull by its config ref.
struct ParsedManifest {
  ImageManifest image;            // its index_digest is left to the caller
  std::vector<LayerHints> hints;  // one per image.layers
  std::string soci_index_digest;  // com.amazon.soci.index-digest

  bool operator==(const ParsedManifest&) const = default;
};

struct ManifestBody {
  std::string_view bytes;
  std::string_view content_type;  // may be empty
  Digest digest;                  // of the bytes, verified
};

/// Exactly one of the two.
struct IndexOrManifest {
  std::optional<ImageIndex> index;
  std::optional<ParsedManifest> manifest;
};

/// InvalidArgument: malformed, ambiguous, absurd sizes, too many layers. Unimplemented: schema 1,
/// artifacts and digests other than sha256, with the reason.
[[nodiscard]] Result<IndexOrManifest> parse_manifest(const ManifestBody& body,
                                                     const Platform& node);

// ---- config ------------------------------------------------------------------------------------

struct ImageConfig {
  Platform platform;
  std::vector<Digest> diff_ids;

  bool operator==(const ImageConfig&) const = default;
};

[[nodiscard]] Result<ImageConfig> parse_image_config(std::string_view bytes);

/// Gives the layers their diff and chain IDs. InvalidArgument if the counts differ: containerd
/// refuses to unpack such an image.
[[nodiscard]] Result<void> add_config(const ImageConfig& config, ImageManifest& image);

}  // namespace imagefs_guard
