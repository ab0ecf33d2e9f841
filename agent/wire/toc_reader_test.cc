#include "agent/wire/toc_reader.h"

#include <doctest/doctest.h>

#include <random>

#include "tests/unit/fake_blobs.h"

namespace imagefs_guard::toc_reader_test {
namespace {

using testing::chunked_blob;
using testing::small_toc;
using testing::stargz_blob;

Result<SizeFact> read(const TocPlace& place, const std::string& bytes, std::size_t piece = 4096) {
  TocReader reader(place, 4096);
  for (std::size_t at = 0; at < bytes.size(); at += piece) {
    if (Result<void> fed = reader.feed(std::string_view(bytes).substr(at, piece)); !fed) {
      return fed.error();
    }
  }
  return reader.finish();
}

struct Sample {
  TocPlace place;
  std::string bytes;
};

Sample stargz_sample(const std::string& json = small_toc()) {
  return {.place = {.format = TocFormat::Stargz, .json_digest = sha256(json)},
          .bytes = testing::gzip(testing::tar_file("stargz.index.json", json) +
                                 std::string(1024, '\0'))};
}

Sample chunked_sample(const std::string& json = small_toc()) {
  const std::string toc = testing::zstd(json);
  return {.place = {.format = TocFormat::ZstdChunked,
                    .json_bytes = static_cast<std::int64_t>(json.size()),
                    .blob_digest = sha256(toc)},
          .bytes = toc};
}

TEST_CASE("toc reader: both formats, in pieces of every size") {
  for (const Sample& sample : {stargz_sample(), chunked_sample()}) {
    const auto whole = read(sample.place, sample.bytes);
    REQUIRE(whole.has_value());
    for (std::size_t piece = 1; piece < 50; ++piece) {
      CHECK(*read(sample.place, sample.bytes, piece) == *whole);
    }
  }
  const auto stargz = read(stargz_sample().place, stargz_sample().bytes);
  const auto chunked = read(chunked_sample().place, chunked_sample().bytes);
  // eStargz's table is unpacked with the layer.
  CHECK(stargz->bytes == chunked->bytes + 4096);
  CHECK(stargz->inodes == chunked->inodes + 1);
}

TEST_CASE("toc reader: cut at each byte, it is refused") {
  for (const Sample& sample : {stargz_sample(), chunked_sample()}) {
    for (std::size_t size = 0; size < sample.bytes.size(); ++size) {
      const auto fact = read(sample.place, sample.bytes.substr(0, size));
      REQUIRE(!fact.has_value());
      CHECK(fact.error().message.starts_with("table of contents: "));
    }
  }
}

TEST_CASE("toc reader: damage at each byte is noticed by the digest") {
  for (const Sample& sample : {stargz_sample(), chunked_sample()}) {
    for (std::size_t i = 0; i < sample.bytes.size(); ++i) {
      std::string damaged = sample.bytes;
      damaged[i] = static_cast<char>(damaged[i] ^ 0x55);
      const auto fact = read(sample.place, damaged);
      // A gzip header has bytes that mean nothing: time, operating system.
      CHECK((!fact.has_value() || (i < 10 && sample.place.format == TocFormat::Stargz)));
    }
  }
}

TEST_CASE("toc reader: damage without a digest is an error or a number, never a crash") {
  std::mt19937_64 random(11);
  for (Sample sample : {stargz_sample(), chunked_sample()}) {
    sample.place.json_digest.reset();
    sample.place.blob_digest.reset();
    for (int i = 0; i < 5'000; ++i) {
      std::string damaged = sample.bytes;
      damaged[random() % damaged.size()] = static_cast<char>(random() % 256);
      if (const auto fact = read(sample.place, damaged, 1 + random() % 100)) {
        CHECK(fact->bytes >= 0);
      }
    }
  }
}

TEST_CASE("toc reader: promises that are not kept") {
  Sample sample = chunked_sample();
  sample.place.json_bytes += 1;
  CHECK(!read(sample.place, sample.bytes).has_value());
  sample = chunked_sample();
  sample.place.blob_digest = sha256("other");
  CHECK(!read(sample.place, sample.bytes).has_value());
  sample = stargz_sample();
  sample.place.json_digest = sha256("other");
  CHECK(!read(sample.place, sample.bytes).has_value());
  const TocPlace stargz{.format = TocFormat::Stargz};
  CHECK(!read(stargz, testing::gzip(testing::tar_file("other", small_toc()))).has_value());
  CHECK(!read(stargz, testing::gzip(std::string(2048, 'x'))).has_value());
  CHECK(!read(stargz, testing::gzip("")).has_value());
  CHECK(!read(stargz, "").has_value());
}

TEST_CASE(
    "toc reader: a bomb ends at what was promised, and nobody may promise more than the limit") {
  // One long string in a few kilobytes: JSON so far, until it is more than was promised.
  const std::string bomb = testing::zstd("{\"a\":\"" + std::string(std::size_t{8} << 20, 'b'));
  CHECK(bomb.size() < 10'000);
  const auto fact = read({.format = TocFormat::ZstdChunked, .json_bytes = 100'000}, bomb);
  REQUIRE(!fact.has_value());
  CHECK(fact.error().kind == ErrorKind::ResourceExhausted);

  std::string header = testing::tar_header("stargz.index.json", '0', std::int64_t{1} << 30);
  const auto claimed = read({.format = TocFormat::Stargz}, testing::gzip(header + "{}"));
  REQUIRE(!claimed.has_value());
  CHECK(claimed.error().kind == ErrorKind::ResourceExhausted);
}

TEST_CASE("toc reader: a large table of real proportions") {
  std::string json = R"({"version":1,"entries":[)";
  for (int i = 0; i < 4'000; ++i) {
    json += (i == 0 ? "" : ",") + std::string(R"({"name":"usr/lib/python3/d)") +
            std::to_string(i / 20) + "/f" + std::to_string(i) +
            R"(.py","type":"reg","size":3000,"digest":"sha256:)" +
            to_string(sha256(std::to_string(i))) + "\"}";
  }
  json += "]}";
  const Sample sample = stargz_sample(json);
  const auto fact = read(sample.place, sample.bytes);
  REQUIRE(fact.has_value());
  CHECK(fact->bytes ==
        4'000 * 4096 + static_cast<std::int64_t>((json.size() + 4095) / 4096 * 4096));
  CHECK(fact->inodes == 4'000 + 200 + 4 + 1);
}

}  // namespace
}  // namespace imagefs_guard::toc_reader_test
