// What containerd answers: gRPC frames, its own messages and CRI's.
#include <string>
#include <vector>

#include "agent/core/verify.h"
#include "agent/wire/containerd.h"
#include "agent/wire/cri.h"
#include "agent/wire/grpc_frame.h"
#include "tests/fuzz/pieces.h"
#include "tests/fuzz/targets.h"

namespace imagefs_guard::fuzz {

namespace {

constexpr std::size_t kFrameLimit = 4096;

struct Frames {
  std::vector<std::string> messages;
  bool good = true;
  bool whole = true;

  bool operator==(const Frames&) const = default;
};

Frames decode(std::string_view input, bool cut) {
  Frames frames;
  wire::GrpcFrameDecoder decoder(kFrameLimit);
  const auto feed = [&](std::string_view piece) {
    const Result<void> fed = decoder.feed(piece, [&](std::string_view message) {
      VERIFY(message.size() <= kFrameLimit);
      frames.messages.emplace_back(message);
      return true;
    });
    frames.good = static_cast<bool>(fed);
    return frames.good;
  };
  if (cut) {
    in_pieces(input, feed);
  } else {
    feed(input);
  }
  frames.whole = frames.good && decoder.at_frame_boundary();
  return frames;
}

void lists(std::string_view input) {
  std::vector<Ingest> ingests;
  static_cast<void>(wire::decode_ingests(input, ingests));
  VERIFY(ingests.size() <= wire::kIngestsLimit);
  wire::BlobList blobs;
  static_cast<void>(wire::decode_blobs(input, blobs));
  VERIFY(blobs.blobs.size() <= wire::kBlobsLimit && blobs.links.size() <= blobs.blobs.size());
  wire::SnapshotList snapshots;
  static_cast<void>(wire::decode_snapshots(input, snapshots));
  VERIFY(snapshots.layers.size() <= wire::kSnapshotsLimit);
  std::vector<PullLease> leases;
  static_cast<void>(wire::decode_leases(input, leases));
  VERIFY(leases.size() <= wire::kLeasesLimit);
  std::vector<LocalImage> images;
  static_cast<void>(wire::decode_images(input, images));
  VERIFY(images.size() <= wire::kImagesLimit);
}

}  // namespace

void containerd(std::string_view input) {
  lists(input);
  static_cast<void>(wire::decode_ingest_status(input));
  static_cast<void>(wire::decode_blob_info(input));
  if (const auto data = wire::decode_read_data(input); data) {
    VERIFY(data->size() <= input.size());
  }
  static_cast<void>(wire::decode_write_status(input));
  static_cast<void>(wire::decode_usage(input));
  static_cast<void>(wire::decode_lease_resources(input));
  static_cast<void>(wire::decode_version(input));
  if (const auto event = wire::decode_event(input); event) {
    static_cast<void>(wire::parse_extract_key(event->key));
  }
  static_cast<void>(wire::parse_extract_key(input));
}

void cri(std::string_view input) {
  static_cast<void>(wire::decode_cri_version(input));
  static_cast<void>(wire::decode_image_fs_info(input));
  if (const auto images = wire::decode_cri_images(input); images) {
    VERIFY(images->size() <= wire::kCriImagesLimit);
  }
  static_cast<void>(wire::decode_cri_status(input));
}

void grpc_frame(std::string_view input) {
  const Frames frames = decode(input, false);
  VERIFY(decode(input, true) == frames);
  if (frames.whole) {
    std::string again;
    for (const std::string& message : frames.messages) {
      again += wire::encode_grpc_frame(message);
    }
    VERIFY(again == input);
  }
  for (const std::string& message : frames.messages) {
    lists(message);
  }
}

}  // namespace imagefs_guard::fuzz
