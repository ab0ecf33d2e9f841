#pragma once
/// Layer blobs made up for tests: tars, compressed as registries have them, with eStargz's and
/// zstd:chunked's tables of contents. Written from the formats' descriptions, not with our readers.

#include <doctest/doctest.h>
#include <zlib.h>
#include <zstd.h>

#include <cstdint>
#include <string>

namespace imagefs_guard::testing {

inline std::string octal(std::int64_t value, int digits) {
  std::string text(static_cast<std::size_t>(digits), '0');
  for (int i = digits - 1; i >= 0; --i) {
    text[static_cast<std::size_t>(i)] = static_cast<char>('0' + value % 8);
    value /= 8;
  }
  return text;
}

/// A ustar header, with the checksum as tar computes it.
inline std::string tar_header(const std::string& name, char type, std::int64_t size) {
  std::string block(512, '\0');
  block.replace(0, name.size(), name);
  block.replace(124, 11, octal(size, 11));
  block.replace(148, 8, "        ");
  block[156] = type;
  block.replace(257, 5, "ustar");
  std::int64_t sum = 0;
  for (const char c : block) {
    sum += static_cast<unsigned char>(c);
  }
  block.replace(148, 6, octal(sum, 6));
  block[154] = '\0';
  return block;
}

inline std::string tar_file(const std::string& name, const std::string& content) {
  std::string file = tar_header(name, '0', static_cast<std::int64_t>(content.size())) + content;
  file.resize((file.size() + 511) / 512 * 512, '\0');
  return file;
}

inline std::string gzip(const std::string& data) {
  z_stream stream{};
  REQUIRE(deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  std::string out(data.size() + 1024, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(data.data()));
  stream.avail_in = static_cast<uInt>(data.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  REQUIRE(deflate(&stream, Z_FINISH) == Z_STREAM_END);
  out.resize(out.size() - stream.avail_out);
  deflateEnd(&stream);
  return out;
}

/// One frame; its header says the content's size.
inline std::string zstd(const std::string& data) {
  std::string out(ZSTD_compressBound(data.size()), '\0');
  const std::size_t size = ZSTD_compress(out.data(), out.size(), data.data(), data.size(), 3);
  REQUIRE(ZSTD_isError(size) == 0);
  out.resize(size);
  return out;
}

inline std::string bytes_of(std::uint64_t value, int count) {
  std::string bytes;
  for (int i = 0; i < count; ++i) {
    bytes += static_cast<char>(value >> (8 * i) & 0xffU);
  }
  return bytes;
}

inline std::string hex16(std::uint64_t value) {
  std::string text(16, '0');
  for (int i = 15; i >= 0; --i) {
    text[static_cast<std::size_t>(i)] = "0123456789abcdef"[value & 15U];
    value >>= 4U;
  }
  return text;
}

/// The 51 bytes that end an eStargz blob; the 47 of the older stargz.
inline std::string stargz_footer(std::uint64_t toc_offset, bool legacy = false) {
  const std::string mark = hex16(toc_offset) + "STARGZ";
  return std::string("\x1f\x8b\x08\x04\0\0\0\0\0\xff", 10) +
         (legacy ? std::string("\x16\0", 2) : std::string("\x1a\0SG\x16\0", 6)) + mark +
         std::string("\x01\0\0\xff\xff", 5) + std::string(8, '\0');
}

/// `content` compressed, the table of contents, the footer.
inline std::string stargz_blob(const std::string& content, const std::string& toc_json) {
  const std::string head = gzip(content);
  return head + gzip(tar_file("stargz.index.json", toc_json) + std::string(1024, '\0')) +
         stargz_footer(head.size());
}

inline std::string skippable(const std::string& content) {
  return "\x50\x2a\x4d\x18" + bytes_of(content.size(), 4) + content;
}

struct ChunkedBlob {
  std::string bytes;
  std::string toc;  // compressed
  std::string position;
};

inline ChunkedBlob chunked_blob(const std::string& content,
                                const std::string& toc_json,
                                bool legacy = false) {
  ChunkedBlob blob;
  blob.bytes = zstd(content);
  blob.toc = zstd(toc_json);
  const std::size_t offset = blob.bytes.size() + 8;
  blob.bytes += skippable(blob.toc);
  std::string footer = bytes_of(offset, 8) + bytes_of(blob.toc.size(), 8) +
                       bytes_of(toc_json.size(), 8) + bytes_of(1, 8);
  footer += legacy ? std::string("GnUlInUx") : std::string(24, '\0') + "GNUlInUx";
  blob.bytes += skippable(footer);
  blob.position = std::to_string(offset) + ":" + std::to_string(blob.toc.size()) + ":" +
                  std::to_string(toc_json.size()) + ":1";
  return blob;
}

/// A table with a directory, two files, a hard link, two symlinks, a whiteout and a second chunk.
inline std::string small_toc() {
  return R"({"version":1,"entries":[)"
         R"({"name":"usr/","type":"dir","mode":493,"xattrs":{"user.size":"eA=="}},)"
         R"({"name":"usr/a","type":"reg","size":5000,"digest":"sha256:00","chunkSize":4000},)"
         R"({"name":"usr/a","type":"chunk","offset":9,"chunkOffset":4000,"chunkSize":1000},)"
         R"({"name":"opt/deep/b","type":"reg","size":1},)"
         R"({"name":"usr/hard","type":"hardlink","linkName":"usr/a"},)"
         R"({"name":"usr/soft","type":"symlink","linkName":"a"},)"
         R"({"name":"usr/.wh.gone","type":"reg"},)"
         R"({"name":"usr/.wh..wh..opq","type":"reg"},)"
         R"({"name":"dev","type":"char","devMajor":1}]})";
}

}  // namespace imagefs_guard::testing
