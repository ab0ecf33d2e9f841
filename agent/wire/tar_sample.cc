#include "agent/wire/tar_sample.h"

#include <zlib.h>

#include <algorithm>
#include <cstddef>
#include <string>

namespace imagefs_guard {

namespace {

constexpr std::size_t kBlock = 512;
constexpr std::int64_t kDiskBlock = 4096;
/// A head of 64 KiB of zeros could become 64 MiB: this much is enough for some thousand headers.
constexpr std::size_t kInflatedLimit = std::size_t{2} << 20;
/// No file of a layer is larger than this; above it a header is nonsense.
constexpr std::int64_t kFileLimit = std::int64_t{1} << 44;

std::int64_t round_up(std::int64_t value, std::int64_t unit) {
  return (value + unit - 1) / unit * unit;
}

/// Octal digits, or base 256 with the top bit set; -1 if it is neither.
std::int64_t read_number(std::string_view field) {
  std::int64_t value = 0;
  if (!field.empty() && (static_cast<unsigned char>(field[0]) & 0x80U) != 0) {
    for (std::size_t i = 1; i < field.size(); ++i) {
      if (value > kFileLimit) {
        return -1;
      }
      value = value * 256 + static_cast<unsigned char>(field[i]);
    }
    return value;
  }
  for (const char c : field) {
    if (c == ' ' || c == '\0') {
      if (value == 0) {
        continue;
      }
      break;
    }
    if (c < '0' || c > '7' || value > kFileLimit) {
      return -1;
    }
    value = value * 8 + (c - '0');
  }
  return value;
}

bool has_valid_checksum(std::string_view header) {
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < kBlock; ++i) {
    const bool in_field = i >= 148 && i < 156;
    sum += in_field ? ' ' : static_cast<unsigned char>(header[i]);
  }
  return read_number(header.substr(148, 8)) == sum;
}

bool is_end(std::string_view header) {
  return std::ranges::all_of(header, [](char c) { return c == '\0'; });
}

/// Counts one entry; false if the header makes no sense.
bool count_entry(std::string_view header, TarSample& sample) {
  const std::int64_t size = read_number(header.substr(124, 12));
  if (size < 0 || size > kFileLimit) {
    return false;
  }
  const char type = header[156];
  const bool has_data = type == '0' || type == '\0' || type == '7' || type == 'x' || type == 'g' ||
                        type == 'L' || type == 'K' || type == 'S';
  sample.tar_bytes += static_cast<std::int64_t>(kBlock) +
                      (has_data ? round_up(size, static_cast<std::int64_t>(kBlock)) : 0);
  switch (type) {
    case '0':
    case '\0':
    case '7':
    case 'S':
      sample.disk_bytes += round_up(size, kDiskBlock);
      ++sample.inodes;
      break;
    case '5':
      sample.disk_bytes += kDiskBlock;
      ++sample.inodes;
      break;
    case '2':
    case '3':
    case '4':
    case '6':
      ++sample.inodes;
      break;
    default:  // hard links, extended headers, long names: no inode of their own
      break;
  }
  return true;
}

Result<std::string> inflate_head(std::string_view head) {
  z_stream stream{};
  constexpr int kGzipWindow = 15 + 16;
  if (inflateInit2(&stream, kGzipWindow) != Z_OK) {
    return Error{ErrorKind::Internal, "inflate can't be set up"};
  }
  std::string out(kInflatedLimit, '\0');
  // zlib's input is not const, though it only reads.
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(head.data()));
  stream.avail_in = static_cast<uInt>(std::min<std::size_t>(head.size(), kInflatedLimit));
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  const int code = inflate(&stream, Z_SYNC_FLUSH);
  out.resize(out.size() - stream.avail_out);
  inflateEnd(&stream);
  const bool cut = code == Z_BUF_ERROR || code == Z_OK || code == Z_STREAM_END;
  if (!cut && out.empty()) {
    return Error{ErrorKind::InvalidArgument, "the layer's beginning is no gzip stream"};
  }
  return out;
}

}  // namespace

Result<TarSample> sample_tar(std::string_view head) {
  TarSample sample;
  while (sample.tar_bytes >= 0 &&
         static_cast<std::uint64_t>(sample.tar_bytes) + kBlock <= head.size()) {
    const std::string_view header = head.substr(static_cast<std::size_t>(sample.tar_bytes), kBlock);
    if (is_end(header)) {
      return sample;
    }
    if (!has_valid_checksum(header) || !count_entry(header, sample)) {
      return Error{ErrorKind::InvalidArgument, "the layer's beginning is no tar"};
    }
  }
  return sample;
}

Result<TarSample> sample_gzip_tar(std::string_view head) {
  return sample_tar(TRY(inflate_head(head)));
}

}  // namespace imagefs_guard
