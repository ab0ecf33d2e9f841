#pragma once
/// Where a layer blob keeps its own table of contents, and what its last and first bytes say about
/// its size. Called by registry/layer_probe with what a Range request brought; pure, bounded: all
/// of it comes from strangers.

#include <cstdint>
#include <optional>
#include <string_view>

#include "agent/core/node_snapshot.h"
#include "agent/wire/manifest.h"

namespace imagefs_guard {

enum class TocFormat {
  Stargz,       // a gzip member with a tar of one file, stargz.index.json, which is unpacked too
  ZstdChunked,  // a zstd frame of JSON inside a skippable frame, which is not
};

/// Larger tables are not read: this is some 250,000 files. Compressed; and as JSON.
constexpr std::int64_t kTocBytesLimit = std::int64_t{16} << 20;
constexpr std::int64_t kTocJsonLimit = std::int64_t{128} << 20;

struct TocPlace {
  TocFormat format = TocFormat::Stargz;
  std::int64_t offset = 0;  // in the blob
  std::int64_t bytes = 0;   // compressed
  /// What must come out of it, where somebody says so.
  std::int64_t json_bytes = -1;
  std::optional<Digest> json_digest;  // of the JSON (eStargz)
  std::optional<Digest> blob_digest;  // of the compressed bytes (zstd:chunked)

  bool operator==(const TocPlace&) const = default;
};

/// How much of a blob's end toc_in_tail() wants: the largest footer.
constexpr std::int64_t kTailBytes = 64;

/// The place that a zstd:chunked layer's annotations name; nullopt: none, or no place in the blob.
[[nodiscard]] std::optional<TocPlace> toc_in_hints(const LayerHints& hints,
                                                   std::int64_t compressed_bytes);

struct BlobTail {
  std::string_view bytes;  // kTailBytes, or the whole of a smaller blob
  std::int64_t compressed_bytes = 0;
};

/// The place that a blob's last bytes name: eStargz's footers (51 bytes, and 47 of old) and
/// zstd:chunked's (64, and 40 of old). Digests come from the hints, where they have them.
[[nodiscard]] std::optional<TocPlace> toc_in_tail(BlobTail tail, const LayerHints& hints);

/// The raw ISIZE; nullopt if the tail is too short.
[[nodiscard]] std::optional<SizeFact> gzip_trailer(std::string_view tail);

/// What the header of the first zstd frame says of the content: ZstdHeader if that can be the whole
/// layer, ZstdFirstFrame if other frames must follow, nullopt where it is silent (encoders that
/// don't know the size in advance are) or no zstd.
[[nodiscard]] std::optional<SizeFact> zstd_content_size(std::string_view head,
                                                        std::int64_t compressed_bytes);

}  // namespace imagefs_guard
