#include "agent/wire/toc_reader.h"

#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <array>
#include <functional>
#include <utility>

#include "agent/wire/tar_header.h"
#include "agent/wire/toc_entries.h"

namespace imagefs_guard {

namespace {

/// Plain bytes handed on at once.
constexpr std::size_t kPieceBytes = std::size_t{64} << 10;
/// 16 MiB: more than encoders take at usual levels; a stranger's blob must not ask for more memory.
constexpr int kTocWindowLog = 24;
constexpr std::string_view kStargzTocName = "stargz.index.json";

using Sink = std::function<Result<void>(std::string_view)>;

}  // namespace

class Expander {
 public:
  Expander() = default;
  virtual ~Expander() = default;
  Expander(const Expander&) = delete;
  Expander& operator=(const Expander&) = delete;

  [[nodiscard]] virtual Result<void> feed(std::string_view compressed, const Sink& sink) = 0;
  [[nodiscard]] virtual bool at_end() const = 0;
};

namespace {

class GzipExpander final : public Expander {
 public:
  GzipExpander() {
    constexpr int kGzipWindow = 15 + 16;
    ready_ = inflateInit2(&stream_, kGzipWindow) == Z_OK;
  }

  ~GzipExpander() override {
    if (ready_) {
      inflateEnd(&stream_);
    }
  }

  Result<void> feed(std::string_view compressed, const Sink& sink) override {
    if (!ready_) {
      return Error{ErrorKind::Internal, "inflate can't be set up"};
    }
    // zlib's input is not const, though it only reads.
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(compressed.data()));
    stream_.avail_in = static_cast<uInt>(compressed.size());
    std::string piece(kPieceBytes, '\0');
    while (!ended_) {
      stream_.next_out = reinterpret_cast<Bytef*>(piece.data());
      stream_.avail_out = static_cast<uInt>(piece.size());
      const int code = inflate(&stream_, Z_NO_FLUSH);
      const std::size_t size = piece.size() - stream_.avail_out;
      ended_ = code == Z_STREAM_END;
      if (size > 0) {
        TRY(sink(std::string_view(piece).substr(0, size)));
      }
      if (code == Z_BUF_ERROR || (code == Z_OK && stream_.avail_in == 0 && size < piece.size())) {
        return {};  // wants more
      }
      if (code != Z_OK && code != Z_STREAM_END) {
        return invalid_toc("damaged gzip");
      }
    }
    return {};  // what follows the member is padding or the footer
  }

  [[nodiscard]] bool at_end() const override { return ended_; }

 private:
  z_stream stream_{};
  bool ready_ = false;
  bool ended_ = false;
};

class ZstdExpander final : public Expander {
 public:
  ZstdExpander() : stream_(ZSTD_createDStream(), ZSTD_freeDStream) {
    if (stream_ != nullptr) {
      ZSTD_DCtx_setParameter(stream_.get(), ZSTD_d_windowLogMax, kTocWindowLog);
    }
  }

  Result<void> feed(std::string_view compressed, const Sink& sink) override {
    if (stream_ == nullptr) {
      return Error{ErrorKind::Internal, "zstd can't be set up"};
    }
    ZSTD_inBuffer from{.src = compressed.data(), .size = compressed.size(), .pos = 0};
    std::string piece(kPieceBytes, '\0');
    for (;;) {
      ZSTD_outBuffer to{.dst = piece.data(), .size = piece.size(), .pos = 0};
      const std::size_t before = from.pos;
      const std::size_t code = ZSTD_decompressStream(stream_.get(), &to, &from);
      if (ZSTD_isError(code) != 0) {
        return invalid_toc("damaged zstd, or a window of more than 16 MiB");
      }
      ended_ = code == 0;
      if (to.pos > 0) {
        TRY(sink(std::string_view(piece).substr(0, to.pos)));
      }
      const bool moved = from.pos > before || to.pos > 0;
      if (!moved || (from.pos == from.size && to.pos < to.size)) {
        return {};
      }
    }
  }

  [[nodiscard]] bool at_end() const override { return ended_; }

 private:
  std::unique_ptr<ZSTD_DStream, std::size_t (*)(ZSTD_DStream*)> stream_;
  bool ended_ = false;
};

std::unique_ptr<Expander> make_expander(TocFormat format) {
  switch (format) {
    case TocFormat::Stargz:
      return std::make_unique<GzipExpander>();
    case TocFormat::ZstdChunked:
      return std::make_unique<ZstdExpander>();
  }
  return nullptr;
}

}  // namespace

TocReader::TocReader(const TocPlace& place, std::int64_t block_bytes)
    : place_(place), entries_(block_bytes), expander_(make_expander(place.format)) {}

TocReader::~TocReader() = default;

Result<void> TocReader::feed(std::string_view compressed) {
  if (place_.blob_digest) {
    compressed_hash_.update(compressed);
  }
  return expander_->feed(compressed, [this](std::string_view plain) { return take_plain(plain); });
}

Result<void> TocReader::take_plain(std::string_view plain) {
  if (place_.format == TocFormat::ZstdChunked) {
    return take_json(plain);
  }
  if (json_expected_ < 0) {
    const std::size_t wanted = std::min(kTarBlockBytes - tar_header_.size(), plain.size());
    tar_header_.append(plain.substr(0, wanted));
    plain.remove_prefix(wanted);
    if (tar_header_.size() < kTarBlockBytes) {
      return {};
    }
    const std::optional<TarHeader> header = parse_tar_header(tar_header_);
    if (!header || header->name != kStargzTocName) {
      return invalid_toc("no tar of " + std::string(kStargzTocName));
    }
    json_expected_ = header->bytes;
  }
  // Behind the JSON the tar has padding and its end.
  const std::int64_t left = json_expected_ - json_bytes_;
  const auto length = std::min<std::int64_t>(left, static_cast<std::int64_t>(plain.size()));
  return take_json(plain.substr(0, static_cast<std::size_t>(length)));
}

Result<void> TocReader::take_json(std::string_view json) {
  json_bytes_ += static_cast<std::int64_t>(json.size());
  const std::int64_t limit =
      place_.json_bytes >= 0 ? std::min(place_.json_bytes, kTocJsonLimit) : kTocJsonLimit;
  if (json_bytes_ > limit || json_expected_ > limit) {
    return Error{ErrorKind::ResourceExhausted,
                 "table of contents: more than " + std::to_string(limit) + " bytes"};
  }
  if (place_.json_digest) {
    json_hash_.update(json);
  }
  return entries_.feed(json);
}

Result<SizeFact> TocReader::finish() {
  if (!expander_->at_end()) {
    return invalid_toc("cut short");
  }
  if ((json_expected_ >= 0 && json_bytes_ != json_expected_) ||
      (place_.json_bytes >= 0 && json_bytes_ != place_.json_bytes)) {
    return invalid_toc("another length than promised");
  }
  if ((place_.blob_digest && compressed_hash_.finish() != *place_.blob_digest) ||
      (place_.json_digest && json_hash_.finish() != *place_.json_digest)) {
    return invalid_toc("another digest than the manifest's");
  }
  if (place_.format == TocFormat::Stargz) {
    entries_.add_file(kStargzTocName, json_bytes_);
  }
  return entries_.finish();
}

}  // namespace imagefs_guard
