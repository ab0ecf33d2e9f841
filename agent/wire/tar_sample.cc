#include "agent/wire/tar_sample.h"

#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "agent/wire/tar_header.h"

namespace imagefs_guard {

namespace {

constexpr std::int64_t kDiskBlock = 4096;
/// A head of 64 KiB of zeros could become 64 MiB: this much is enough for some thousand headers.
constexpr std::size_t kInflatedLimit = std::size_t{2} << 20;
/// 8 MiB: what encoders use at their usual levels.
constexpr int kZstdWindowLog = 23;

void count_entry(const TarHeader& header, TarSample& sample) {
  const std::int64_t size = header.bytes;
  const char type = header.type;
  const bool has_data = type == '0' || type == '\0' || type == '7' || type == 'x' || type == 'g' ||
                        type == 'L' || type == 'K' || type == 'S';
  constexpr std::int64_t kBlock = kTarBlockBytes;
  sample.tar_bytes += kBlock + (has_data ? round_up(size, kBlock) : 0);
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
}

struct InflatedHead {
  std::string bytes;
  std::int64_t member_bytes = 0;  // compressed; 0: the member goes on
};

Result<InflatedHead> inflate_head(std::string_view head) {
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
  const auto member_bytes = code == Z_STREAM_END ? static_cast<std::int64_t>(stream.total_in) : 0;
  inflateEnd(&stream);
  const bool cut = code == Z_BUF_ERROR || code == Z_OK || code == Z_STREAM_END;
  if (!cut && out.empty()) {
    return Error{ErrorKind::InvalidArgument, "the layer's beginning is no gzip stream"};
  }
  return InflatedHead{.bytes = std::move(out), .member_bytes = member_bytes};
}

Result<std::string> expand_zstd_head(std::string_view head) {
  const std::unique_ptr<ZSTD_DStream, std::size_t (*)(ZSTD_DStream*)> stream(ZSTD_createDStream(),
                                                                             ZSTD_freeDStream);
  if (stream == nullptr) {
    return Error{ErrorKind::Internal, "zstd can't be set up"};
  }
  // A larger window would be memory that a stranger's blob asks for.
  ZSTD_DCtx_setParameter(stream.get(), ZSTD_d_windowLogMax, kZstdWindowLog);
  std::string out(kInflatedLimit, '\0');
  ZSTD_outBuffer to{.dst = out.data(), .size = out.size(), .pos = 0};
  ZSTD_inBuffer from{.src = head.data(), .size = head.size(), .pos = 0};
  while (from.pos < from.size && to.pos < to.size) {
    const std::size_t before = from.pos + to.pos;
    const std::size_t code = ZSTD_decompressStream(stream.get(), &to, &from);
    if (ZSTD_isError(code) != 0 || from.pos + to.pos == before) {
      break;  // what came before is good
    }
  }
  out.resize(to.pos);
  if (out.empty()) {
    return Error{ErrorKind::InvalidArgument, "the layer's beginning is no zstd stream"};
  }
  return out;
}

}  // namespace

Result<TarSample> sample_tar(std::string_view head) {
  TarSample sample;
  while (sample.tar_bytes >= 0 &&
         static_cast<std::uint64_t>(sample.tar_bytes) + kTarBlockBytes <= head.size()) {
    const std::string_view header =
        head.substr(static_cast<std::size_t>(sample.tar_bytes), kTarBlockBytes);
    if (is_tar_end(header)) {
      return sample;
    }
    const std::optional<TarHeader> parsed = parse_tar_header(header);
    if (!parsed) {
      return Error{ErrorKind::InvalidArgument, "the layer's beginning is no tar"};
    }
    count_entry(*parsed, sample);
  }
  return sample;
}

Result<TarSample> sample_gzip_tar(std::string_view head) {
  const InflatedHead inflated = TRY(inflate_head(head));
  TarSample sample = TRY(sample_tar(inflated.bytes));
  sample.first_member_bytes = inflated.member_bytes;
  return sample;
}

Result<TarSample> sample_zstd_tar(std::string_view head) {
  return sample_tar(TRY(expand_zstd_head(head)));
}

}  // namespace imagefs_guard
