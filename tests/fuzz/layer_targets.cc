// The beginnings, ends and tables of contents of layer blobs.
#include <algorithm>

#include "agent/core/verify.h"
#include "agent/wire/tar_header.h"
#include "agent/wire/tar_sample.h"
#include "agent/wire/toc_entries.h"
#include "agent/wire/toc_place.h"
#include "agent/wire/toc_reader.h"
#include "tests/fuzz/pieces.h"
#include "tests/fuzz/targets.h"

namespace imagefs_guard::fuzz {

namespace {

void check_sample(const Result<TarSample>& sample) {
  if (sample) {
    VERIFY(sample->tar_bytes >= 0 && sample->disk_bytes >= 0 && sample->inodes >= 0);
    VERIFY(sample->first_member_bytes >= 0);
  }
}

void check_fact(const SizeFact& fact) {
  VERIFY(fact.bytes >= 0);
  VERIFY(fact.ext4_directory_bytes >= 0 && fact.xfs_directory_bytes >= 0);
}

template <typename Reader>
Result<SizeFact> read_toc(Reader& reader, std::string_view input, bool cut) {
  Result<void> fed;
  const auto feed = [&](std::string_view piece) {
    fed = reader.feed(piece);
    return static_cast<bool>(fed);
  };
  if (cut) {
    in_pieces(input, feed);
  } else {
    feed(input);
  }
  return fed ? reader.finish() : Result<SizeFact>(fed.error());
}

void check_entries(std::string_view input) {
  TocEntries entries(4096);
  TocEntries same(4096);
  const auto whole = read_toc(entries, input, false);
  const auto cut = read_toc(same, input, true);
  VERIFY(static_cast<bool>(whole) == static_cast<bool>(cut));
  if (whole) {
    check_fact(*whole);
    VERIFY(*whole == *cut);
  }
}

void check_reader(const TocPlace& place, std::string_view input) {
  TocReader reader(place, 4096);
  if (const auto fact = read_toc(reader, input, true); fact) {
    check_fact(*fact);
  }
}

}  // namespace

void tar(std::string_view input) {
  check_sample(sample_tar(input));
  check_sample(sample_gzip_tar(input));
  check_sample(sample_zstd_tar(input));
  if (input.size() >= kTarBlockBytes) {
    if (const auto header = parse_tar_header(input.substr(0, kTarBlockBytes)); header) {
      VERIFY(header->bytes >= 0 && header->name.size() <= 100);
    }
  }
  if (const auto fact = gzip_trailer(input); fact.has_value()) {
    check_fact(*fact);
  }
  const auto size = static_cast<std::int64_t>(input.size());
  if (const auto fact = zstd_content_size(input, size); fact.has_value()) {
    check_fact(*fact);
  }
}

void toc(std::string_view input) {
  check_entries(input);
  const auto size = static_cast<std::int64_t>(input.size());
  for (const TocFormat format : {TocFormat::Stargz, TocFormat::ZstdChunked}) {
    check_reader({.format = format, .offset = 0, .bytes = size}, input);
  }
  const std::string_view tail =
      input.substr(input.size() - std::min<std::size_t>(input.size(), kTailBytes));
  const LayerHints hints;
  if (const auto place = toc_in_tail({.bytes = tail, .compressed_bytes = size}, hints); place) {
    VERIFY(place->offset >= 0 && place->bytes > 0 && place->bytes <= size - place->offset);
    check_reader(*place,
                 input.substr(static_cast<std::size_t>(place->offset),
                              static_cast<std::size_t>(place->bytes)));
  }
}

}  // namespace imagefs_guard::fuzz
