#include "agent/core/unpacked_size.h"

#include <algorithm>
#include <limits>
#include <optional>

namespace imagefs_guard {

namespace {

constexpr std::int64_t kGzipModulus = std::int64_t{1} << 32;
constexpr std::int64_t kTarBlockBytes = 512;

/// Ratios in hundredths. Docker Hub's layers: aggregate 3.55, median 2.6; CPython's library 3.59,
/// /usr/share 3.08, CUDA libraries 2 to 2.6, model weights 1.0 to 1.1.
struct RatioPrior {
  std::int64_t low_percent;
  std::int64_t mid_percent;
  std::int64_t high_percent;
};

constexpr RatioPrior kGzipPrior{.low_percent = 100, .mid_percent = 300, .high_percent = 450};
constexpr RatioPrior kZstdPrior{.low_percent = 100, .mid_percent = 330, .high_percent = 500};

/// A trailer's candidate above this ratio is only believed when there is no smaller one.
constexpr std::int64_t kTrailerRatioMaximum = 12;
/// The next candidate is the high side while its ratio is one that real layers have.
constexpr std::int64_t kTrailerHighPercent = 500;
/// deflate can't do better than 1032:1; zstd can, but nobody ships such a layer honestly.
constexpr std::int64_t kHintRatioMaximum = 1100;

/// value * percent / 100 without overflow; saturates.
std::int64_t scale(std::int64_t value, std::int64_t percent) {
  constexpr std::int64_t kMaximum = std::numeric_limits<std::int64_t>::max();
  if (value > kMaximum / percent) {
    return kMaximum / 2;
  }
  return value * percent / 100;
}

/// Smaller than 99 % of the blob: no archive shrinks by being unpacked.
bool is_too_small(std::int64_t tar_bytes, std::int64_t compressed_bytes) {
  return tar_bytes < compressed_bytes - compressed_bytes / 100;
}

struct TarBytes {
  std::int64_t low = 0;
  std::int64_t mid = 0;
  std::int64_t high = 0;
};

/// A gzip trailer is the tar's size modulo 2^32: takes the candidate nearest the prior.
std::optional<TarBytes> from_gzip_trailer(std::int64_t trailer, std::int64_t compressed_bytes) {
  if (trailer <= 0 || trailer >= kGzipModulus || trailer % kTarBlockBytes != 0) {
    return std::nullopt;  // many members, or not a tar
  }
  std::int64_t first = trailer;
  if (is_too_small(first, compressed_bytes)) {
    const std::int64_t missing = compressed_bytes - compressed_bytes / 100 - first;
    first += (missing + kGzipModulus - 1) / kGzipModulus * kGzipModulus;
  }
  const std::int64_t prior = scale(compressed_bytes, kGzipPrior.mid_percent);
  const std::int64_t plausible = scale(compressed_bytes, 100 * kTrailerRatioMaximum);
  std::int64_t best = first;
  for (std::int64_t next = first + kGzipModulus; next <= plausible && best < prior;
       next += kGzipModulus) {
    if (next - prior >= prior - best) {
      break;  // the one below the prior is nearer
    }
    best = next;
  }
  TarBytes tar{.low = first, .mid = best, .high = best};
  const std::int64_t above = best + kGzipModulus;
  if (above <= scale(compressed_bytes, kTrailerHighPercent)) {
    tar.high = above;
  }
  return tar;
}

std::optional<TarBytes> from_hint(std::int64_t tar_bytes, std::int64_t compressed_bytes) {
  if (is_too_small(tar_bytes, compressed_bytes) ||
      tar_bytes / kHintRatioMaximum > compressed_bytes) {
    return std::nullopt;
  }
  return TarBytes{.low = tar_bytes, .mid = tar_bytes, .high = tar_bytes};
}

TarBytes from_prior(const Layer& layer) {
  const RatioPrior prior = layer.compression == LayerCompression::Zstd ? kZstdPrior : kGzipPrior;
  return TarBytes{.low = scale(layer.compressed_bytes, prior.low_percent),
                  .mid = scale(layer.compressed_bytes, prior.mid_percent),
                  .high = scale(layer.compressed_bytes, prior.high_percent)};
}

/// Software trees have an inode per 12 kB of tar, and a tree's files take up to 18 % more on the
/// disk than in the tar (measured: XFS 2.1 kB an inode); a few big files take next to nothing more.
constexpr std::int64_t kTarBytesPerInode = 12'000;

UnpackedSize on_disk(const TarBytes& tar, FilesystemKind kind, const SizeFact& fact) {
  // What the headers say of the archive's beginning is exact, the rest has the usual doubt.
  const std::int64_t sampled = std::min(fact.sampled_tar_bytes, tar.low);
  const std::int64_t known = sampled > 0 ? fact.sampled_disk_bytes : 0;
  const std::int64_t known_inodes = sampled > 0 ? std::max<std::int64_t>(fact.inodes, 0) : 0;
  UnpackedSize size{.low_bytes = known + (tar.low - sampled),
                    .mid_bytes = known + (tar.mid - sampled),
                    .high_bytes = known + (tar.high - sampled),
                    .inodes = known_inodes + (tar.mid - sampled) / kTarBytesPerInode,
                    .source = fact.source};
  if (kind != FilesystemKind::Other) {
    size.mid_bytes += (tar.mid - sampled) / 20;
    size.high_bytes += (tar.high - sampled) / 50 * 9;
  }
  return size;
}

/// Bytes and inodes that somebody measured: the other filesystem's rounding is the only doubt.
UnpackedSize from_record(const SizeFact& fact) {
  return UnpackedSize{.low_bytes = fact.bytes,
                      .mid_bytes = fact.bytes,
                      .high_bytes = fact.bytes,
                      .inodes = std::max<std::int64_t>(fact.inodes, 0),
                      .source = fact.source};
}

const SizeFact* find_fact(const Layer& layer, SizeSource source) {
  const auto found = std::ranges::find(layer.facts, source, &SizeFact::source);
  return found == layer.facts.end() ? nullptr : &*found;
}

}  // namespace

UnpackedSize estimate_unpacked(const Layer& layer, FilesystemKind kind) {
  for (const SizeSource source :
       {SizeSource::LearnedHere, SizeSource::LearnedElsewhere, SizeSource::Toc}) {
    const SizeFact* fact = find_fact(layer, source);
    if (fact != nullptr && fact->bytes >= 0) {
      return from_record(*fact);
    }
  }
  if (layer.compression == LayerCompression::None) {
    const std::int64_t bytes = layer.compressed_bytes;
    return on_disk(
        {.low = bytes, .mid = bytes, .high = bytes}, kind, {.source = SizeSource::PlainTar});
  }
  if (const SizeFact* fact = find_fact(layer, SizeSource::GzipTrailer)) {
    if (const auto tar = from_gzip_trailer(fact->bytes, layer.compressed_bytes)) {
      return on_disk(*tar, kind, *fact);
    }
  }
  for (const SizeSource source : {SizeSource::ZstdHeader, SizeSource::Annotation}) {
    const SizeFact* fact = find_fact(layer, source);
    if (fact == nullptr) {
      continue;
    }
    if (const auto tar = from_hint(fact->bytes, layer.compressed_bytes)) {
      return on_disk(*tar, kind, *fact);
    }
  }
  return on_disk(from_prior(layer), kind, {.source = SizeSource::Prior});
}

const char* to_string(SizeSource source) {
  switch (source) {
    case SizeSource::LearnedHere:
      return "learned here";
    case SizeSource::LearnedElsewhere:
      return "learned elsewhere";
    case SizeSource::Toc:
      return "table of contents";
    case SizeSource::GzipTrailer:
      return "gzip trailer";
    case SizeSource::ZstdHeader:
      return "zstd header";
    case SizeSource::Annotation:
      return "annotation";
    case SizeSource::PlainTar:
      return "plain tar";
    case SizeSource::Prior:
      return "prior";
  }
  return "unknown";
}

}  // namespace imagefs_guard
