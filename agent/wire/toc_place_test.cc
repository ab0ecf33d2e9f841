#include "agent/wire/toc_place.h"

#include <doctest/doctest.h>

#include "agent/core/sha256.h"
#include "agent/core/unpacked_size.h"
#include "tests/unit/fake_blobs.h"

namespace imagefs_guard::toc_place_test {
namespace {

using testing::bytes_of;
using testing::chunked_blob;
using testing::small_toc;
using testing::stargz_blob;

std::string tail_of(const std::string& blob) {
  constexpr std::size_t kTail = kTailBytes;
  return blob.size() <= kTail ? blob : blob.substr(blob.size() - kTail);
}

std::optional<TocPlace> place_in(const std::string& blob, const LayerHints& hints = {}) {
  const std::string tail = tail_of(blob);
  return toc_in_tail({.bytes = tail, .compressed_bytes = static_cast<std::int64_t>(blob.size())},
                     hints);
}

TEST_CASE("toc place: eStargz's footer, new and old") {
  const std::string blob = stargz_blob("content", small_toc());
  const LayerHints hints{.stargz_toc_digest = to_string(sha256("x"))};
  const auto place = place_in(blob, hints);
  REQUIRE(place.has_value());
  CHECK(place->format == TocFormat::Stargz);
  CHECK(place->offset + place->bytes + 51 == static_cast<std::int64_t>(blob.size()));
  CHECK(place->json_digest == sha256("x"));
  CHECK(blob.substr(static_cast<std::size_t>(place->offset), 2) == "\x1f\x8b");

  const std::string legacy = std::string(100, 'x') + testing::stargz_footer(40, true);
  REQUIRE(place_in(legacy).has_value());
  CHECK(place_in(legacy)->offset == 40);
  CHECK(place_in(legacy)->bytes == 60);
}

TEST_CASE("toc place: zstd:chunked by footer and by annotation") {
  for (const bool legacy : {false, true}) {
    const auto blob = chunked_blob("content", small_toc(), legacy);
    const auto place = place_in(blob.bytes);
    REQUIRE(place.has_value());
    CHECK(blob.bytes.substr(static_cast<std::size_t>(place->offset),
                            static_cast<std::size_t>(place->bytes)) == blob.toc);
    CHECK(place->json_bytes == static_cast<std::int64_t>(small_toc().size()));
    const auto hinted = toc_in_hints({.zstd_chunked_position = blob.position},
                                     static_cast<std::int64_t>(blob.bytes.size()));
    CHECK(hinted == place);
  }
}

TEST_CASE("toc place: places outside of the blob, or too large, are none") {
  constexpr std::int64_t kBlob = 100'000'000;
  const auto at = [](const std::string& position) {
    return toc_in_hints({.zstd_chunked_position = position}, kBlob).has_value();
  };
  CHECK(at("10:20:30:1"));
  CHECK(at("99999980:20:30:1"));
  for (const char* position : {"99999981:20:30:1",
                               "10:0:30:1",
                               "-1:20:30:1",
                               "10:20:30:2",
                               "10:20:30",
                               "10:20:30:1:",
                               "",
                               "a:b:c:d",
                               "10:20000000:30:1",
                               "10:20:999999999999:1",
                               "9223372036854775807:9223372036854775807:1:1",
                               "99999999999999999999:1:1:1"}) {
    CAPTURE(position);
    CHECK(!at(position));
  }
  CHECK(!place_in(std::string(60, 'x') + testing::stargz_footer(61)).has_value());
  CHECK(!place_in(std::string(60, 'x') + testing::stargz_footer(60)).has_value());
  CHECK(place_in(std::string(60, 'x') + testing::stargz_footer(59)).has_value());
  CHECK(!place_in(testing::stargz_footer(0xffffffffffffffffU)).has_value());
  CHECK(!place_in(std::string(std::size_t{20} << 20, 'x') + testing::stargz_footer(0)).has_value());
  CHECK(!place_in(std::string(56, '\xff') + "GNUlInUx").has_value());
}

TEST_CASE("toc place: a footer that is cut or damaged is none") {
  for (const std::string& blob : {stargz_blob("content", small_toc()),
                                  chunked_blob("content", small_toc()).bytes,
                                  chunked_blob("content", small_toc(), true).bytes}) {
    for (std::size_t size = 0; size < blob.size(); ++size) {
      CHECK(!place_in(blob.substr(0, size)).has_value());
    }
  }
  const std::string footer = testing::stargz_footer(40);
  for (std::size_t i = 0; i < 4; ++i) {
    std::string damaged = std::string(100, 'x') + footer;
    damaged[100 + i] = 'y';
    CHECK(!place_in(damaged).has_value());
  }
}

TEST_CASE("toc place: the gzip trailer") {
  CHECK(!gzip_trailer("1234567").has_value());
  const auto fact = gzip_trailer("abcd" + bytes_of(0xcccc'dd00U, 4));
  REQUIRE(fact.has_value());
  CHECK(fact->bytes == 0xcccc'dd00);
  CHECK(fact->source == SizeSource::GzipTrailer);
}

TEST_CASE("toc place: content sizes in zstd headers") {
  struct Case {
    const char* name;
    std::string head;
    std::int64_t compressed;
    std::int64_t bytes;  // -1 = nothing to be had
    SizeSource source;
  };

  const std::string magic = "\x28\xb5\x2f\xfd";
  const auto real = [](std::size_t size) { return testing::zstd(std::string(size, 'x')); };
  const Case cases[] = {
      {"one byte", real(200).substr(0, 32), 100, 200, SizeSource::ZstdFirstFrame},
      {"two bytes", real(1024), 100, 1024, SizeSource::ZstdHeader},
      {"four bytes", real(512'000).substr(0, 32), 1000, 512'000, SizeSource::ZstdHeader},
      {"eight bytes",
       magic + "\xe0" + bytes_of(std::uint64_t{1} << 33U, 8),
       1'000'000'000,
       std::int64_t{1} << 33,
       SizeSource::ZstdHeader},
      {"with window and dictionary ID",
       magic + "\x82" + "w" + "id" + bytes_of(1024, 4),
       1000,
       1024,
       SizeSource::ZstdHeader},
      {"no whole tar", real(1025), 100, 1025, SizeSource::ZstdFirstFrame},
      {"smaller than the blob: others follow", real(1024), 4096, 1024, SizeSource::ZstdFirstFrame},
      {"behind a note, as parallel tools do it",
       testing::skippable("1234") + real(1024),
       100,
       1024,
       SizeSource::ZstdFirstFrame},
      {"silent", magic + std::string("\x00\x58", 2), 100, -1, SizeSource::Prior},
      {"reserved bit", magic + "\xe8" + bytes_of(1024, 8), 100, -1, SizeSource::Prior},
      {"absurd", magic + "\xe0" + bytes_of(0xffff'ffff'ffff'ffffU, 8), 100, -1, SizeSource::Prior},
      {"a note longer than the head",
       testing::skippable(std::string(99, 'x')).substr(0, 50),
       100,
       -1,
       SizeSource::Prior},
      {"gzip", testing::gzip("x"), 100, -1, SizeSource::Prior},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    const auto fact = zstd_content_size(c.head, c.compressed);
    CHECK(fact.has_value() == (c.bytes >= 0));
    if (fact) {
      CHECK(fact->bytes == c.bytes);
      CHECK(std::string(to_string(fact->source)) == to_string(c.source));
    }
    for (std::size_t size = 0; size < std::min<std::size_t>(c.head.size(), 40); ++size) {
      (void)zstd_content_size(c.head.substr(0, size), c.compressed);
    }
  }
}

}  // namespace
}  // namespace imagefs_guard::toc_place_test
