#include "agent/wire/toc_place.h"

#include <array>
#include <charconv>
#include <string>

#include "agent/wire/tar_header.h"

namespace imagefs_guard {

namespace {

constexpr std::size_t kStargzFooterBytes = 51;
constexpr std::size_t kStargzLegacyFooterBytes = 47;
constexpr std::size_t kChunkedFooterBytes = 64;
constexpr std::size_t kChunkedLegacyFooterBytes = 40;
constexpr std::string_view kChunkedMagic = "GNUlInUx";
constexpr std::string_view kChunkedLegacyMagic = "GnUlInUx";
/// "CRFS": the JSON that this reads. Others are announced, and not in use.
constexpr std::int64_t kManifestType = 1;

std::uint64_t little_endian(std::string_view bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = bytes.size(); i > 0; --i) {
    value = value << 8U | static_cast<unsigned char>(bytes[i - 1]);
  }
  return value;
}

/// As int64; -1 for what does not fit, which no check accepts.
std::int64_t signed_at(std::string_view bytes, std::size_t offset) {
  const std::uint64_t value = little_endian(bytes.substr(offset, 8));
  return value > static_cast<std::uint64_t>(INT64_MAX) ? -1 : static_cast<std::int64_t>(value);
}

/// Whether the place lies in front of the footer and is worth to be read.
bool is_sound(const TocPlace& place, std::int64_t end) {
  return place.offset >= 0 && place.bytes > 0 && place.bytes <= kTocBytesLimit &&
         place.offset <= end - place.bytes && place.json_bytes <= kTocJsonLimit;
}

/// "<offset>:<length>:<uncompressed length>:<type>".
std::optional<std::array<std::int64_t, 4>> split_position(std::string_view text) {
  std::array<std::int64_t, 4> numbers{};
  const char* at = text.data();
  const char* const end = at + text.size();
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (i > 0 && (at == end || *at++ != ':')) {
      return std::nullopt;
    }
    const auto [next, error] = std::from_chars(at, end, numbers[i]);
    if (error != std::errc() || numbers[i] < 0) {
      return std::nullopt;
    }
    at = next;
  }
  return at == end ? std::optional(numbers) : std::nullopt;
}

/// The offset in a gzip header's extra field: 16 hex digits and the mark.
std::optional<std::int64_t> stargz_offset(std::string_view extra) {
  constexpr std::size_t kDigits = 16;
  if (extra.size() != kDigits + 6 || extra.substr(kDigits) != "STARGZ") {
    return std::nullopt;
  }
  std::uint64_t offset = 0;
  const auto [end, error] = std::from_chars(extra.data(), extra.data() + kDigits, offset, 16);
  if (error != std::errc() || end != extra.data() + kDigits ||
      offset > static_cast<std::uint64_t>(INT64_MAX)) {
    return std::nullopt;
  }
  return static_cast<std::int64_t>(offset);
}

std::string_view last(std::string_view bytes, std::size_t count) {
  return bytes.substr(bytes.size() - count);
}

std::optional<TocPlace> stargz_place(const BlobTail& tail, const LayerHints& hints) {
  for (const std::size_t size : {kStargzFooterBytes, kStargzLegacyFooterBytes}) {
    if (tail.bytes.size() < size) {
      continue;
    }
    // A gzip header whose extra field is all that is of interest: FLG = FEXTRA.
    const std::string_view footer = last(tail.bytes, size);
    const bool legacy = size == kStargzLegacyFooterBytes;
    const std::string_view length =
        legacy ? std::string_view("\x16\0", 2) : std::string_view("\x1a\0SG\x16\0", 6);
    if (!footer.starts_with("\x1f\x8b\x08\x04") || footer.substr(10, length.size()) != length) {
      continue;
    }
    const auto offset = stargz_offset(footer.substr(10 + length.size(), 22));
    if (!offset) {
      continue;
    }
    const std::int64_t end = tail.compressed_bytes - static_cast<std::int64_t>(size);
    const TocPlace place{.format = TocFormat::Stargz,
                         .offset = *offset,
                         .bytes = end - *offset,
                         .json_digest = parse_digest(hints.stargz_toc_digest)};
    return is_sound(place, end) ? std::optional(place) : std::nullopt;
  }
  return std::nullopt;
}

std::optional<TocPlace> chunked_place(const BlobTail& tail, const LayerHints& hints) {
  for (const std::size_t size : {kChunkedFooterBytes, kChunkedLegacyFooterBytes}) {
    const bool legacy = size == kChunkedLegacyFooterBytes;
    if (tail.bytes.size() < size ||
        !tail.bytes.ends_with(legacy ? kChunkedLegacyMagic : kChunkedMagic)) {
      continue;
    }
    const std::string_view footer = last(tail.bytes, size);
    const TocPlace place{.format = TocFormat::ZstdChunked,
                         .offset = signed_at(footer, 0),
                         .bytes = signed_at(footer, 8),
                         .json_bytes = signed_at(footer, 16),
                         .blob_digest = parse_digest(hints.zstd_chunked_checksum)};
    const std::int64_t end = tail.compressed_bytes - static_cast<std::int64_t>(size);
    const bool known = signed_at(footer, 24) == kManifestType;
    return known && is_sound(place, end) ? std::optional(place) : std::nullopt;
  }
  return std::nullopt;
}

struct ZstdFrame {
  std::int64_t content_bytes = -1;  // -1: the header does not say
  bool behind_others = false;       // skippable frames came before it
};

/// RFC 8878, 3.1.1.1.
std::optional<ZstdFrame> read_frame_header(std::string_view bytes) {
  if (!bytes.starts_with("\x28\xb5\x2f\xfd") || bytes.size() < 5) {
    return std::nullopt;
  }
  const auto descriptor = static_cast<unsigned char>(bytes[4]);
  const bool single_segment = (descriptor & 0x20U) != 0;
  if ((descriptor & 0x08U) != 0) {
    return std::nullopt;  // reserved
  }
  constexpr std::array<std::size_t, 4> kIdBytes = {0, 1, 2, 4};
  constexpr std::array<std::size_t, 4> kContentBytes = {0, 2, 4, 8};
  const unsigned flag = descriptor >> 6U;
  const std::size_t width = flag == 0 && single_segment ? 1 : kContentBytes[flag];
  const std::size_t at = 5 + (single_segment ? 0 : 1) + kIdBytes[descriptor & 3U];
  if (bytes.size() < at + width) {
    return std::nullopt;
  }
  ZstdFrame frame;
  if (width > 0) {
    const std::uint64_t value = little_endian(bytes.substr(at, width)) + (width == 2 ? 256 : 0);
    frame.content_bytes =
        value > static_cast<std::uint64_t>(INT64_MAX) ? -1 : static_cast<std::int64_t>(value);
  }
  return frame;
}

/// Skippable frames are what tools put their own notes in, in front of frames too.
std::optional<ZstdFrame> first_frame(std::string_view bytes) {
  constexpr int kSkippableLimit = 8;
  bool skipped = false;
  for (int i = 0; i < kSkippableLimit && bytes.size() >= 8; ++i) {
    const bool skippable = (static_cast<unsigned char>(bytes[0]) & 0xf0U) == 0x50U &&
                           bytes.substr(1, 3) == "\x2a\x4d\x18";
    if (!skippable) {
      break;
    }
    const std::uint64_t size = 8 + little_endian(bytes.substr(4, 4));
    if (size >= bytes.size()) {
      return std::nullopt;
    }
    bytes.remove_prefix(static_cast<std::size_t>(size));
    skipped = true;
  }
  std::optional<ZstdFrame> frame = read_frame_header(bytes);
  if (frame) {
    frame->behind_others = skipped;
  }
  return frame;
}

}  // namespace

std::optional<TocPlace> toc_in_hints(const LayerHints& hints, std::int64_t compressed_bytes) {
  const auto position = split_position(hints.zstd_chunked_position);
  if (!position || (*position)[3] != kManifestType) {
    return std::nullopt;
  }
  const TocPlace place{.format = TocFormat::ZstdChunked,
                       .offset = (*position)[0],
                       .bytes = (*position)[1],
                       .json_bytes = (*position)[2],
                       .blob_digest = parse_digest(hints.zstd_chunked_checksum)};
  return is_sound(place, compressed_bytes) ? std::optional(place) : std::nullopt;
}

std::optional<TocPlace> toc_in_tail(BlobTail tail, const LayerHints& hints) {
  if (const auto place = stargz_place(tail, hints)) {
    return place;
  }
  return chunked_place(tail, hints);
}

std::optional<SizeFact> gzip_trailer(std::string_view tail) {
  constexpr std::size_t kTrailerBytes = 8;  // CRC32 and ISIZE end a gzip member
  if (tail.size() < kTrailerBytes) {
    return std::nullopt;
  }
  return SizeFact{.source = SizeSource::GzipTrailer,
                  .bytes = static_cast<std::int64_t>(little_endian(last(tail, 4)))};
}

std::optional<SizeFact> zstd_content_size(std::string_view head, std::int64_t compressed_bytes) {
  const std::optional<ZstdFrame> frame = first_frame(head);
  if (!frame || frame->content_bytes <= 0) {
    return std::nullopt;
  }
  constexpr std::int64_t kBlock = kTarBlockBytes;
  const bool whole = !frame->behind_others && frame->content_bytes % kBlock == 0 &&
                     frame->content_bytes >= compressed_bytes - compressed_bytes / 100;
  return SizeFact{.source = whole ? SizeSource::ZstdHeader : SizeSource::ZstdFirstFrame,
                  .bytes = frame->content_bytes};
}

}  // namespace imagefs_guard
