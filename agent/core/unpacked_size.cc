#include "agent/core/unpacked_size.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "agent/core/words.h"

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

/// Otherwise: many members, or not a tar.
bool can_be_trailer(std::int64_t trailer) {
  return trailer > 0 && trailer < kGzipModulus && trailer % kTarBlockBytes == 0;
}

/// The smallest size with this trailer that the blob can have.
std::int64_t first_candidate(std::int64_t trailer, std::int64_t compressed_bytes) {
  if (!is_too_small(trailer, compressed_bytes)) {
    return trailer;
  }
  const std::int64_t missing = compressed_bytes - compressed_bytes / 100 - trailer;
  return trailer + (missing + kGzipModulus - 1) / kGzipModulus * kGzipModulus;
}

/// A gzip trailer is the tar's size modulo 2^32: takes the candidate nearest the prior.
std::optional<TarBytes> from_gzip_trailer(std::int64_t trailer, std::int64_t compressed_bytes) {
  if (!can_be_trailer(trailer)) {
    return std::nullopt;
  }
  const std::int64_t first = first_candidate(trailer, compressed_bytes);
  const std::int64_t prior = scale(compressed_bytes, kGzipPrior.mid_percent);
  const std::int64_t plausible = scale(compressed_bytes, 100 * kTrailerRatioMaximum);
  if (first >= kGzipModulus && first > plausible) {
    return std::nullopt;  // nothing compresses so well by chance: see raise_to_odd_trailer()
  }
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

/// Measured on XFS: a tree takes its tar and 2.1 kB an inode more, which is the rest of the last
/// block, less the tar's own padding, the inode, and directories. On ext4 inodes are there already,
/// and each directory has a block: a little less.
constexpr std::int64_t kXfsBytesPerInode = 2'100;
constexpr std::int64_t kExt4BytesPerInode = 2'000;
constexpr std::int64_t kXfsInodeBytes = 512;
/// Measured, tar bytes per inode: Python and conda trees 12,000 to 15,000, /usr/include 14,000,
/// node_modules 6,000, libraries and programs 140,000 to 230,000. What is not known is taken to lie
/// between.
constexpr std::int64_t kTarBytesPerInodeUsual = 40'000;

/// The densest that layers of a size are: the larger, the more kinds of files they have.
constexpr std::int64_t densest(std::int64_t tar_bytes) {
  if (tar_bytes <= 64 * kMib) {
    return 5'000;
  }
  return tar_bytes <= 512 * kMib ? 8'000 : 12'000;
}

/// From so many headers on, the archive's beginning says something about the rest of it.
constexpr std::int64_t kSampleInodes = 32;
/// No tree is denser than this: a header and a block for each file.
constexpr std::int64_t kTarBytesPerInodeLeast = 1'024;

struct Density {
  std::int64_t mid = 0;  // tar bytes per inode
  std::int64_t high = 0;
};

/// The high side never gets better by a sample: what follows may be denser.
Density density_of(std::int64_t tar_bytes,
                   std::int64_t sampled_bytes,
                   std::int64_t sampled_inodes) {
  Density density{.mid = kTarBytesPerInodeUsual, .high = densest(tar_bytes)};
  if (sampled_inodes >= kSampleInodes) {
    const std::int64_t seen = std::max(sampled_bytes / sampled_inodes, kTarBytesPerInodeLeast);
    density.mid = std::min((seen + kTarBytesPerInodeUsual) / 2, kTarBytesPerInodeUsual);
    density.high = std::min(seen, density.high);
  }
  return density;
}

std::int64_t bytes_per_inode(FilesystemKind kind) {
  switch (kind) {
    case FilesystemKind::Xfs:
      return kXfsBytesPerInode;
    case FilesystemKind::Ext4:
      return kExt4BytesPerInode;
    case FilesystemKind::Other:
      return 0;
  }
  return 0;
}

/// What a layer costs beside its files: two directories of the snapshotter, the rest of the blob's
/// last block, its place in containerd's databases. Measured on ext4 and XFS: 28 kB a layer, and up
/// to 130 kB for the database that grows. Without it what was learned would always be a little
/// short.
constexpr std::int64_t kBesideBytesUsual = std::int64_t{32} << 10;
constexpr std::int64_t kBesideBytesMost = std::int64_t{256} << 10;

/// Until a file is written back (up to 35 s after it was unpacked) XFS keeps five blocks free for
/// its extents, and statfs, so the kubelet too, sees them taken. Measured on kernel 6.18: 20,480
/// bytes a file, 240 MiB for 10,000 files of 1 kB that take 44 MiB in the end; ext4 has no such
/// thing. Directories and links have none, which leaves a little to the safe side.
constexpr std::int64_t kXfsReservedBytes = std::int64_t{5} * 4096;

std::int64_t reserved_for(std::int64_t inodes, FilesystemKind kind) {
  return kind == FilesystemKind::Xfs ? kXfsReservedBytes * inodes : 0;
}

UnpackedSize with_beside(UnpackedSize size, FilesystemKind kind) {
  if (kind != FilesystemKind::Other) {
    size.mid_bytes += kBesideBytesUsual;
    size.high_bytes += kBesideBytesMost;
  }
  return size;
}

UnpackedSize on_disk(const TarBytes& tar, FilesystemKind kind, const SizeFact& fact) {
  // What the headers say of the archive's beginning is exact, the rest has the usual doubt.
  const std::int64_t sampled = std::min(fact.sampled_tar_bytes, tar.low);
  const std::int64_t known_inodes = sampled > 0 ? std::max<std::int64_t>(fact.inodes, 0) : 0;
  const std::int64_t known = (sampled > 0 ? fact.sampled_disk_bytes : 0) +
                             (kind == FilesystemKind::Xfs ? kXfsInodeBytes * known_inodes : 0);
  const Density density = density_of(tar.high, sampled, known_inodes);
  const std::int64_t inodes_mid = (tar.mid - sampled) / density.mid;
  const std::int64_t inodes_high = (tar.high - sampled) / density.high;
  // Without headers the narrow band of a hint would hide the doubt about how many files there are.
  const bool is_blind = sampled == 0 && fact.source != SizeSource::Prior;
  const std::int64_t inodes_doubt = is_blind ? (inodes_high - inodes_mid) / 2 : 0;
  return UnpackedSize{
      .low_bytes = known + (tar.low - sampled),
      .mid_bytes = known + (tar.mid - sampled) + inodes_mid * bytes_per_inode(kind),
      .high_bytes = known + (tar.high - sampled) + inodes_high * bytes_per_inode(kind),
      .inodes = known_inodes + (tar.mid - sampled) / density.high,
      .reserved_bytes = reserved_for(known_inodes + inodes_mid + inodes_doubt, kind),
      .source = fact.source};
}

/// What the snapshotter measured. Its Usage counts blocks: on ext4 that is all, on XFS the inodes
/// come on top. Measured on another filesystem, the directories are in doubt.
UnpackedSize from_record(const SizeFact& fact, FilesystemKind kind) {
  const std::int64_t inodes = std::max<std::int64_t>(fact.inodes, 0);
  UnpackedSize size{.low_bytes = fact.bytes,
                    .mid_bytes = fact.bytes,
                    .high_bytes = fact.bytes,
                    .inodes = inodes,
                    .reserved_bytes = reserved_for(inodes, kind),
                    .source = fact.source};
  if (kind == FilesystemKind::Xfs) {
    size.low_bytes += kXfsInodeBytes * inodes;
    size.mid_bytes += kXfsInodeBytes * inodes;
    size.high_bytes += kXfsInodeBytes * inodes;
  }
  // One inode in ten is a directory, in the worst trees one in four.
  constexpr std::int64_t kBlock = 4096;
  if (kind == FilesystemKind::Ext4 && fact.measured_on != FilesystemKind::Ext4) {
    size.mid_bytes += inodes / 10 * kBlock;
    size.high_bytes += inodes / 4 * kBlock;
  } else if (kind == FilesystemKind::Xfs && fact.measured_on == FilesystemKind::Ext4) {
    size.low_bytes = std::max<std::int64_t>(size.low_bytes - inodes / 4 * kBlock, 0);
    size.mid_bytes = std::max<std::int64_t>(size.mid_bytes - inodes / 20 * kBlock, 0);
  }
  return size;
}

/// Every entry of the layer is known; only how large directories grow, and extended attributes,
/// remain in doubt.
UnpackedSize from_toc(const SizeFact& fact, FilesystemKind kind) {
  std::int64_t bytes = fact.bytes;
  const std::int64_t inodes = std::max<std::int64_t>(fact.inodes, 0);
  if (kind == FilesystemKind::Xfs) {
    bytes += fact.xfs_directory_bytes + kXfsInodeBytes * inodes;
  } else {
    bytes += fact.ext4_directory_bytes;
  }
  return UnpackedSize{.low_bytes = bytes,
                      .mid_bytes = bytes,
                      .high_bytes = bytes + bytes / 100,
                      .inodes = inodes,
                      .reserved_bytes = reserved_for(inodes, kind),
                      .source = fact.source};
}

/// Whether a record from another node can be about this blob at all. Hard links and files written
/// twice make a layer smaller than its tar, so the lower bound is laxer than for a tar's size; the
/// upper one is what real layers have, since one node's lie must not stop the pulls of all. What
/// is beyond it is asked of the registry.
bool can_be_true(std::int64_t unpacked_bytes, std::int64_t compressed_bytes) {
  constexpr std::int64_t kWorthDoubt = std::int64_t{1} << 20;
  if (compressed_bytes < kWorthDoubt) {
    return unpacked_bytes >= 0;
  }
  return unpacked_bytes >= compressed_bytes / 2 &&
         unpacked_bytes / kTrailerRatioMaximum <= compressed_bytes;
}

/// A table of contents that leaves files out, or makes some up, does not add up to the blob.
bool can_be_true(const SizeFact& toc, std::int64_t compressed_bytes) {
  // Beside the tar the blob holds the table itself and a header per chunk.
  constexpr std::int64_t kPerInode = 256;
  const std::int64_t extra = kPerInode * std::max<std::int64_t>(toc.inodes, 0) + 4096;
  return toc.bytes >= 0 && !is_too_small(toc.toc_tar_bytes + extra, compressed_bytes) &&
         toc.toc_tar_bytes / kHintRatioMaximum <= compressed_bytes;
}

const SizeFact* find_fact(const Layer& layer, SizeSource source) {
  const auto found = std::ranges::find(layer.facts, source, &SizeFact::source);
  return found == layer.facts.end() ? nullptr : &*found;
}

}  // namespace

namespace {

/// What somebody has counted: bytes on a disk, not of a tar.
std::optional<UnpackedSize> counted(const Layer& layer, FilesystemKind kind) {
  const SizeFact* here = find_fact(layer, SizeSource::LearnedHere);
  if (here != nullptr && here->bytes >= 0) {
    return from_record(*here, kind);
  }
  const SizeFact* elsewhere = find_fact(layer, SizeSource::LearnedElsewhere);
  if (elsewhere != nullptr && can_be_true(elsewhere->bytes, layer.compressed_bytes)) {
    return from_record(*elsewhere, kind);
  }
  const SizeFact* toc = find_fact(layer, SizeSource::Toc);
  if (toc != nullptr && can_be_true(*toc, layer.compressed_bytes)) {
    return from_toc(*toc, kind);
  }
  return std::nullopt;
}

/// The first of several frames: the layer is larger than that, nobody knows by how much.
void raise_to_first_frame(const Layer& layer, FilesystemKind kind, UnpackedSize& size) {
  const SizeFact* fact = find_fact(layer, SizeSource::ZstdFirstFrame);
  if (fact == nullptr || fact->bytes <= size.low_bytes ||
      fact->bytes / kHintRatioMaximum > layer.compressed_bytes) {
    return;
  }
  const TarBytes least{.low = fact->bytes, .mid = fact->bytes, .high = fact->bytes};
  const UnpackedSize bound = on_disk(least, kind, {.source = SizeSource::ZstdFirstFrame});
  size.low_bytes = std::max(size.low_bytes, bound.low_bytes);
  size.mid_bytes = std::max(size.mid_bytes, bound.mid_bytes);
  size.high_bytes = std::max(size.high_bytes, bound.high_bytes);
  size.inodes = std::max(size.inodes, bound.inodes);
  size.reserved_bytes = std::max(size.reserved_bytes, bound.reserved_bytes);
  size.source = SizeSource::ZstdFirstFrame;
}

/// A trailer that only a ratio no layer has would explain: most likely that of the last of several
/// members, maybe zeros of more than 4 GiB. Nobody knows, and the high side says so.
void raise_to_odd_trailer(const Layer& layer, FilesystemKind kind, UnpackedSize& size) {
  const SizeFact* fact = find_fact(layer, SizeSource::GzipTrailer);
  if (fact == nullptr || !can_be_trailer(fact->bytes)) {
    return;
  }
  const std::int64_t odd = first_candidate(fact->bytes, layer.compressed_bytes);
  const TarBytes most{.low = odd, .mid = odd, .high = odd};
  size.high_bytes = std::max(size.high_bytes,
                             on_disk(most, kind, {.source = SizeSource::GzipTrailer}).high_bytes);
}

UnpackedSize estimate_files(const Layer& layer, FilesystemKind kind) {
  if (const auto size = counted(layer, kind)) {
    return *size;
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
  UnpackedSize size = on_disk(from_prior(layer), kind, {.source = SizeSource::Prior});
  raise_to_first_frame(layer, kind, size);
  raise_to_odd_trailer(layer, kind, size);
  return size;
}

}  // namespace

UnpackedSize estimate_unpacked(const Layer& layer, FilesystemKind kind) {
  return with_beside(estimate_files(layer, kind), kind);
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
    case SizeSource::ZstdFirstFrame:
      return "first zstd frame, a lower bound";
    case SizeSource::Prior:
      return "prior";
  }
  return "unknown";
}

}  // namespace imagefs_guard
