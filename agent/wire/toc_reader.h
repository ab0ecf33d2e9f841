#pragma once
/// From the compressed table of contents of a layer to what the layer takes on a disk: decompresses
/// as the bytes come, unpacks eStargz's tar, checks length and digest where the manifest names
/// them, and adds up the entries. Called by registry/layer_probe; pure, bounded: never holds more
/// than a piece of it.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "agent/core/result.h"
#include "agent/core/sha256.h"
#include "agent/wire/toc_entries.h"
#include "agent/wire/toc_place.h"

namespace imagefs_guard {

/// Turns compressed bytes into plain ones, piece by piece; one for gzip, one for zstd.
class Expander;

class TocReader {
 public:
  TocReader(const TocPlace& place, std::int64_t block_bytes);
  ~TocReader();
  TocReader(const TocReader&) = delete;
  TocReader& operator=(const TocReader&) = delete;

  /// The next compressed bytes, cut anywhere. InvalidArgument: damaged, or no table;
  /// ResourceExhausted: larger than promised, or than kTocJsonLimit.
  [[nodiscard]] Result<void> feed(std::string_view compressed);

  /// After the last byte: a Toc fact. InvalidArgument also if length or digest is not as promised.
  [[nodiscard]] Result<SizeFact> finish();

 private:
  [[nodiscard]] Result<void> take_plain(std::string_view plain);
  [[nodiscard]] Result<void> take_json(std::string_view json);

  TocPlace place_;
  TocEntries entries_;
  std::unique_ptr<Expander> expander_;
  Sha256 compressed_hash_;
  Sha256 json_hash_;
  std::string tar_header_;
  std::int64_t json_expected_ = -1;  // by the tar's header
  std::int64_t json_bytes_ = 0;
};

}  // namespace imagefs_guard
