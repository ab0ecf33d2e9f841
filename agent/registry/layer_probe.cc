#include "agent/registry/layer_probe.h"

#include <algorithm>
#include <utility>

#include "agent/core/result.h"
#include "agent/wire/tar_sample.h"

namespace imagefs_guard {

namespace {

/// Inflates to some headers of small files, or to the one header of a big one. Blobs of this size
/// are asked for as a whole.
constexpr std::int64_t kHeadBytes = 32 * 1024;
/// Of a large layer more is worth its time: a hundred headers say how small its files are.
constexpr std::int64_t kLargeHeadBytes = 256 * 1024;
constexpr std::int64_t kLargeBytes = std::int64_t{8} << 20;
/// A piece of a table of contents: becomes some 3 MB of JSON, which take the loop about 10 ms.
/// With kTocBytesLimit: at most 64 pieces.
constexpr std::int64_t kTocPieceBytes = 256 * 1024;

}  // namespace

LayerProbe::LayerProbe(RegistryClient& client, LayerQuestion question, Answer answer)
    : client_(client), question_(std::move(question)), answer_(std::move(answer)) {}

void LayerProbe::start() {
  if (const auto place = toc_in_hints(question_.hints, question_.compressed_bytes)) {
    begin_toc(*place);
  } else {
    ask_tail();
  }
}

void LayerProbe::ask(std::int64_t offset,
                     std::int64_t length,
                     void (LayerProbe::*next)(Result<std::string>)) {
  client_.blob_range(question_.image,
                     {.digest = question_.digest, .offset = offset, .length = length},
                     [this, next, alive = std::weak_ptr<char>(alive_)](Result<std::string> bytes) {
                       if (!alive.expired()) {
                         (this->*next)(std::move(bytes));
                       }
                     });
}

void LayerProbe::ask_tail() {
  const std::int64_t size = question_.compressed_bytes;
  const std::int64_t length = size <= kHeadBytes ? size : kTailBytes;
  ask(size - length, length, &LayerProbe::on_tail);
}

void LayerProbe::on_tail(Result<std::string> tail) {
  if (!tail) {
    finish(std::move(tail).error());
    return;
  }
  const auto last = std::min<std::size_t>(tail->size(), kTailBytes);
  const BlobTail blob{.bytes = std::string_view(*tail).substr(tail->size() - last),
                      .compressed_bytes = question_.compressed_bytes};
  if (question_.compression == LayerCompression::Gzip) {
    trailer_ = gzip_trailer(blob.bytes);
  }
  if (const auto place = toc_in_tail(blob, question_.hints)) {
    begin_toc(*place);
  } else if (static_cast<std::int64_t>(tail->size()) == question_.compressed_bytes) {
    take_head(*tail);
  } else {
    ask_head();
  }
}

void LayerProbe::begin_toc(const TocPlace& place) {
  place_ = place;
  toc_ = std::make_unique<TocReader>(place, question_.block_bytes);
  ask_toc_piece();
}

void LayerProbe::ask_toc_piece() {
  ask(place_.offset + toc_read_bytes_,
      std::min(kTocPieceBytes, place_.bytes - toc_read_bytes_),
      &LayerProbe::on_toc_piece);
}

void LayerProbe::on_toc_piece(Result<std::string> piece) {
  if (!piece) {
    after_toc(std::move(piece).error());
    return;
  }
  toc_read_bytes_ += static_cast<std::int64_t>(piece->size());
  if (Result<void> fed = toc_->feed(*piece); !fed) {
    // Whatever the bytes say, it is not for a retry.
    after_toc(Error{ErrorKind::InvalidArgument, fed.error().message});
    return;
  }
  if (toc_read_bytes_ < place_.bytes) {
    ask_toc_piece();
    return;
  }
  Result<SizeFact> fact = toc_->finish();
  toc_.reset();
  if (fact) {
    finish(std::move(fact));
  } else {
    after_toc(std::move(fact).error());
  }
}

/// No table: what does the blob itself say?
void LayerProbe::after_toc(Error error) {
  toc_.reset();
  if (is_transient(error.kind)) {
    finish(std::move(error));
  } else if (question_.compression == LayerCompression::Gzip && trailer_.has_value()) {
    take_head({});  // its members are many, so neither trailer nor beginning tells more
  } else {
    ask_head();
  }
}

void LayerProbe::ask_head() {
  const std::int64_t size = question_.compressed_bytes;
  ask(0, size >= kLargeBytes ? kLargeHeadBytes : std::min(kHeadBytes, size), &LayerProbe::on_head);
}

void LayerProbe::on_head(Result<std::string> head) {
  if (!head && is_transient(head.error().kind) && !trailer_) {
    finish(std::move(head).error());
    return;
  }
  take_head(head ? std::string_view(*head) : std::string_view());
}

void LayerProbe::take_head(std::string_view head) {
  const bool is_zstd = question_.compression == LayerCompression::Zstd;
  std::optional<SizeFact> fact =
      is_zstd ? zstd_content_size(head, question_.compressed_bytes) : trailer_;
  if (!fact) {
    finish(Error{ErrorKind::Unimplemented, "the layer does not tell its unpacked size"});
    return;
  }
  if (fact->source != SizeSource::ZstdFirstFrame) {
    const Result<TarSample> sample = is_zstd ? sample_zstd_tar(head) : sample_gzip_tar(head);
    if (sample && sample->first_member_bytes > 0 &&
        sample->first_member_bytes < question_.compressed_bytes) {
      finish(Error{ErrorKind::Unimplemented, "the layer has many gzip members: no size"});
      return;
    }
    if (sample && sample->tar_bytes > 0) {
      fact->sampled_tar_bytes = sample->tar_bytes;
      fact->sampled_disk_bytes = sample->disk_bytes;
      fact->inodes = sample->inodes;
    }
  }
  finish(*fact);
}

void LayerProbe::finish(Result<SizeFact> result) {
  answer_(std::move(result));
}

}  // namespace imagefs_guard
