#include "agent/wire/containerd.h"

#include "agent/wire/protobuf.h"

namespace imagefs_guard::wire {

namespace {

constexpr std::string_view kPinnedLabel = "io.cri-containerd.pinned";
constexpr std::string_view kExpireLabel = "containerd.io/gc.expire";

Error too_many(const char* what, std::size_t limit) {
  return Error{ErrorKind::ResourceExhausted,
               std::string("more than ") + std::to_string(limit) + " " + what};
}

/// Calls `element(view)` for each element of repeated message field 1.
template <typename Element>
Result<void> read_elements(std::string_view message, Element&& element) {
  return read_message(message, [&](protozero::pbf_reader& reader) -> Result<void> {
    if (reader.tag() == 1 && is_bytes(reader)) {
      return element(take_bytes(reader));
    }
    reader.skip();
    return {};
  });
}

struct Label {
  std::string_view key;
  std::string_view value;
};

Result<Label> decode_label(std::string_view message) {
  Label label;
  TRY(read_message(message, [&](protozero::pbf_reader& reader) -> Result<void> {
    if (reader.tag() == 1) {
      label.key = take_bytes(reader);
    } else if (reader.tag() == 2) {
      label.value = take_bytes(reader);
    } else {
      reader.skip();
    }
    return {};
  }));
  return label;
}

std::int64_t not_negative(std::int64_t value) {
  return value < 0 ? 0 : value;
}

Result<Ingest> decode_ingest(std::string_view message) {
  Ingest ingest;
  TRY(read_message(message, [&](protozero::pbf_reader& reader) -> Result<void> {
    switch (reader.tag()) {
      case 3:
        ingest.ref = take_bytes(reader);
        break;
      case 4:
        ingest.offset_bytes = not_negative(take_integer(reader));
        break;
      case 5:
        ingest.total_bytes = not_negative(take_integer(reader));
        break;
      default:
        reader.skip();
    }
    return {};
  }));
  return ingest;
}

constexpr std::string_view kContentLabel = "containerd.io/gc.ref.content.";
constexpr std::string_view kSnapshotLabel = "containerd.io/gc.ref.snapshot.";
/// Manifests that one index may name; more are left out, the image is then not reclaimable.
constexpr std::size_t kLinksLimit = 1'000;

/// Layers ("l.0") are left out: snapshots tell what is unpacked, and there are many.
void take_link(const Label& label, ContentLinks& links) {
  const std::optional<Digest> digest = parse_digest(label.value);
  if (!digest) {
    return;
  }
  if (label.key.starts_with(kSnapshotLabel)) {
    links.top_chain = *digest;
    links.snapshotter = label.key.substr(kSnapshotLabel.size());
  } else if (label.key == std::string(kContentLabel) + "config") {
    links.config = *digest;
  } else if (label.key.starts_with(std::string(kContentLabel) + "m.") &&
             links.manifests.size() < kLinksLimit) {
    links.manifests.push_back(*digest);
  }
}

/// Nullopt for a digest that is not sha256. `links`: where its labels go, if anybody wants them.
Result<std::optional<LocalBlob>> decode_blob(std::string_view message,
                                             ContentLinks* links = nullptr) {
  std::optional<Digest> digest;
  std::int64_t bytes = 0;
  const Result<void> read =
      read_message(message, [&](protozero::pbf_reader& reader) -> Result<void> {
        if (reader.tag() == 1) {
          digest = parse_digest(take_bytes(reader));
        } else if (reader.tag() == 2) {
          bytes = not_negative(take_integer(reader));
        } else if (reader.tag() == 5 && links != nullptr) {
          take_link(TRY(decode_label(take_bytes(reader))), *links);
        } else {
          reader.skip();
        }
        return {};
      });
  if (!read) {
    return read.error();
  }
  if (!digest) {
    return std::optional<LocalBlob>();
  }
  if (links != nullptr) {
    links->digest = *digest;
  }
  return std::optional<LocalBlob>(LocalBlob{.digest = *digest, .bytes = bytes});
}

Result<void> decode_snapshot(std::string_view message, SnapshotList& list) {
  constexpr std::int64_t kActive = 2;
  constexpr std::int64_t kCommitted = 3;
  std::string_view name;
  std::string_view parent;
  std::int64_t kind = 0;
  TRY(read_message(message, [&](protozero::pbf_reader& reader) -> Result<void> {
    if (reader.tag() == 1) {
      name = take_bytes(reader);
    } else if (reader.tag() == 2) {
      parent = take_bytes(reader);
    } else if (reader.tag() == 3) {
      kind = take_integer(reader);
    } else {
      reader.skip();
    }
    return {};
  }));
  if (list.layers.size() >= kSnapshotsLimit || list.extracts.size() >= kSnapshotsLimit ||
      list.used_chains.size() >= kSnapshotsLimit) {
    return too_many("snapshots", kSnapshotsLimit);
  }
  const std::optional<Digest> below = parse_digest(parent);
  if (kind == kCommitted) {
    if (const std::optional<Digest> chain_id = parse_digest(name)) {
      list.layers.push_back({.chain_id = *chain_id, .parent = below.value_or(Digest{})});
      return {};
    }
  } else if (kind == kActive) {
    if (const std::optional<Digest> chain_id = parse_extract_key(name)) {
      list.extracts.push_back(
          {.chain_id = *chain_id, .key = std::string(name), .parent = below.value_or(Digest{})});
    }
  }
  // A container, a view, or an extraction: what it stands on must stay.
  if (below) {
    list.used_chains.push_back(*below);
  }
  return {};
}

struct DecodedLease {
  PullLease lease;
  bool expires = false;
};

Result<DecodedLease> decode_lease(std::string_view message) {
  DecodedLease decoded;
  const Result<void> read =
      read_message(message, [&](protozero::pbf_reader& reader) -> Result<void> {
        switch (reader.tag()) {
          case 1:
            decoded.lease.id = take_bytes(reader);
            break;
          case 2:
            decoded.lease.created_at = TRY(decode_timestamp(take_bytes(reader)));
            break;
          case 3: {
            const Label label = TRY(decode_label(take_bytes(reader)));
            decoded.expires = decoded.expires || label.key == kExpireLabel;
            break;
          }
          default:
            reader.skip();
        }
        return {};
      });
  if (!read) {
    return read.error();
  }
  return decoded;
}

Result<void> decode_resource(std::string_view message, LeaseResources& resources) {
  std::string_view id;
  std::string_view type;
  TRY(read_message(message, [&](protozero::pbf_reader& reader) -> Result<void> {
    if (reader.tag() == 1) {
      id = take_bytes(reader);
    } else if (reader.tag() == 2) {
      type = take_bytes(reader);
    } else {
      reader.skip();
    }
    return {};
  }));
  if (resources.content.size() + resources.ingest_refs.size() >= kLeaseResourcesLimit) {
    return too_many("resources of a lease", kLeaseResourcesLimit);
  }
  if (type == "content") {
    if (const std::optional<Digest> digest = parse_digest(id)) {
      resources.content.push_back(*digest);
    }
  } else if (type == "ingests") {
    resources.ingest_refs.emplace_back(id);
  }
  return {};
}

/// Digest of a descriptor.
Result<std::optional<Digest>> decode_target(std::string_view message) {
  constexpr std::uint32_t kDigest = 2;
  return parse_digest(TRY(nested(message, kDigest)));
}

Result<void> decode_image(std::string_view message, std::vector<LocalImage>& images) {
  LocalImage image;
  std::optional<Digest> target;
  const Result<void> read =
      read_message(message, [&](protozero::pbf_reader& reader) -> Result<void> {
        switch (reader.tag()) {
          case 1:
            image.name = take_bytes(reader);
            break;
          case 2: {
            const Label label = TRY(decode_label(take_bytes(reader)));
            image.pinned = image.pinned || (label.key == kPinnedLabel && label.value == "pinned");
            break;
          }
          case 3:
            target = TRY(decode_target(take_bytes(reader)));
            break;
          case 7:
            image.created_at = TRY(decode_timestamp(take_bytes(reader)));
            break;
          default:
            reader.skip();
        }
        return {};
      });
  if (!read) {
    return read.error();
  }
  if (!target) {
    return {};
  }
  if (images.size() >= kImagesLimit) {
    return too_many("images", kImagesLimit);
  }
  image.target = *target;
  images.push_back(std::move(image));
  return {};
}

/// The payload of an event: what the topic's message has in fields 1 and 2 (and 5).
Result<void> decode_event_payload(std::string_view any, ContainerdEvent& event) {
  constexpr std::uint32_t kAnyValue = 2;
  const std::string_view payload = TRY(nested(any, kAnyValue));
  return read_message(payload, [&](protozero::pbf_reader& reader) -> Result<void> {
    if (reader.tag() == 1) {
      event.key = take_bytes(reader);
    } else if (reader.tag() == 2 && event.topic == "/snapshot/commit") {
      event.name = take_bytes(reader);
    } else if (reader.tag() == 2 && event.topic == "/snapshot/prepare") {
      event.parent = take_bytes(reader);
    } else if (reader.tag() == 5) {
      event.snapshotter = take_bytes(reader);
    } else {
      reader.skip();
    }
    return {};
  });
}

}  // namespace

Result<WallTime> decode_timestamp(std::string_view message) {
  std::int64_t seconds = 0;
  std::int64_t nanoseconds = 0;
  TRY(read_message(message, [&](protozero::pbf_reader& reader) -> Result<void> {
    if (reader.tag() == 1) {
      seconds = take_integer(reader);
    } else if (reader.tag() == 2) {
      nanoseconds = take_integer(reader);
    } else {
      reader.skip();
    }
    return {};
  }));
  constexpr std::int64_t kLastSecond = 253'402'300'799;  // of the year 9999
  if (seconds < 0 || seconds > kLastSecond || nanoseconds < 0 || nanoseconds > 999'999'999) {
    return WallTime{};
  }
  return WallTime(std::chrono::seconds(seconds) + Duration(nanoseconds / 1000));
}

std::string encode_one_string(std::string_view text) {
  std::string message;
  if (!text.empty()) {
    protozero::pbf_writer(message).add_string(1, text.data(), text.size());
  }
  return message;
}

Result<void> decode_ingests(std::string_view message, std::vector<Ingest>& ingests) {
  return read_elements(message, [&](std::string_view element) -> Result<void> {
    if (ingests.size() >= kIngestsLimit) {
      return too_many("ingests", kIngestsLimit);
    }
    ingests.push_back(TRY(decode_ingest(element)));
    return {};
  });
}

Result<Ingest> decode_ingest_status(std::string_view message) {
  return decode_ingest(TRY(nested(message, 1)));
}

Result<void> decode_blobs(std::string_view message, BlobList& list) {
  return read_elements(message, [&](std::string_view element) -> Result<void> {
    if (list.blobs.size() >= kBlobsLimit) {
      return too_many("blobs", kBlobsLimit);
    }
    ContentLinks links;
    if (const std::optional<LocalBlob> blob = TRY(decode_blob(element, &links))) {
      list.blobs.push_back(*blob);
      if (!links.config.is_zero() || !links.top_chain.is_zero() || !links.manifests.empty()) {
        list.links.push_back(std::move(links));
      }
    }
    return {};
  });
}

Result<LocalBlob> decode_blob_info(std::string_view message) {
  const std::string_view info = TRY(nested(message, 1));
  const std::optional<LocalBlob> blob = TRY(decode_blob(info));
  if (!blob) {
    return Error{ErrorKind::InvalidArgument, "blob without a sha256 digest"};
  }
  return *blob;
}

std::string encode_read(const BlobRange& range) {
  std::string message;
  protozero::pbf_writer writer(message);
  writer.add_string(1, to_string(range.digest));
  if (range.offset_bytes > 0) {
    writer.add_int64(2, range.offset_bytes);
  }
  if (range.length_bytes > 0) {
    writer.add_int64(3, range.length_bytes);
  }
  return message;
}

Result<std::string_view> decode_read_data(std::string_view message) {
  constexpr std::uint32_t kData = 2;
  return nested(message, kData);
}

std::string encode_write_stat(std::string_view ref, const Digest& expected) {
  // Action STAT is 0, so it is not on the wire.
  std::string message;
  protozero::pbf_writer writer(message);
  writer.add_string(2, ref.data(), ref.size());
  writer.add_string(4, to_string(expected));
  return message;
}

std::string encode_write_blob(std::string_view ref, const Digest& expected, std::string_view data) {
  constexpr std::int32_t kCommit = 2;
  std::string message;
  protozero::pbf_writer writer(message);
  writer.add_enum(1, kCommit);
  writer.add_string(2, ref.data(), ref.size());
  writer.add_int64(3, static_cast<std::int64_t>(data.size()));
  writer.add_string(4, to_string(expected));
  writer.add_bytes(6, data.data(), data.size());
  return message;
}

Result<WriteStatus> decode_write_status(std::string_view message) {
  WriteStatus status;
  TRY(read_message(message, [&](protozero::pbf_reader& reader) -> Result<void> {
    if (reader.tag() == 4) {
      status.offset_bytes = take_integer(reader);
    } else if (reader.tag() == 5) {
      status.total_bytes = take_integer(reader);
    } else {
      reader.skip();
    }
    return {};
  }));
  return status;
}

std::string encode_snapshot_key(const SnapshotKey& key) {
  std::string message;
  protozero::pbf_writer writer(message);
  writer.add_string(1, key.snapshotter.data(), key.snapshotter.size());
  writer.add_string(2, key.key.data(), key.key.size());
  return message;
}

std::string encode_prepare(const SnapshotKey& key) {
  return encode_snapshot_key(key);
}

std::string encode_list_snapshots(std::string_view snapshotter) {
  return encode_one_string(snapshotter);
}

std::optional<Digest> parse_extract_key(std::string_view key) {
  if (!key.starts_with("extract-")) {
    return std::nullopt;
  }
  const std::size_t space = key.rfind(' ');
  return space == std::string_view::npos ? std::nullopt : parse_digest(key.substr(space + 1));
}

Result<void> decode_snapshots(std::string_view message, SnapshotList& list) {
  return read_elements(message,
                       [&](std::string_view element) { return decode_snapshot(element, list); });
}

Result<SnapshotUsage> decode_usage(std::string_view message) {
  SnapshotUsage usage;
  TRY(read_message(message, [&](protozero::pbf_reader& reader) -> Result<void> {
    if (reader.tag() == 1) {
      usage.bytes = not_negative(take_integer(reader));
    } else if (reader.tag() == 2) {
      usage.inodes = not_negative(take_integer(reader));
    } else {
      reader.skip();
    }
    return {};
  }));
  return usage;
}

Result<void> decode_leases(std::string_view message, std::vector<PullLease>& leases) {
  return read_elements(message, [&](std::string_view element) -> Result<void> {
    DecodedLease decoded = TRY(decode_lease(element));
    if (!decoded.expires) {
      return {};
    }
    if (leases.size() >= kLeasesLimit) {
      return too_many("leases", kLeasesLimit);
    }
    leases.push_back(std::move(decoded.lease));
    return {};
  });
}

Result<LeaseResources> decode_lease_resources(std::string_view message) {
  LeaseResources resources;
  TRY(read_elements(message,
                    [&](std::string_view element) { return decode_resource(element, resources); }));
  return resources;
}

std::string encode_delete_lease(std::string_view id, bool synchronous) {
  std::string message;
  protozero::pbf_writer writer(message);
  writer.add_string(1, id.data(), id.size());
  if (synchronous) {
    writer.add_bool(2, true);
  }
  return message;
}

Result<void> decode_images(std::string_view message, std::vector<LocalImage>& images) {
  return read_elements(message,
                       [&](std::string_view element) { return decode_image(element, images); });
}

Result<std::string> decode_version(std::string_view message) {
  return std::string(TRY(nested(message, 1)));
}

Result<ContainerdEvent> decode_event(std::string_view message) {
  ContainerdEvent event;
  std::string_view any;
  TRY(read_message(message, [&](protozero::pbf_reader& reader) -> Result<void> {
    switch (reader.tag()) {
      case 2:
        event.containerd_namespace = take_bytes(reader);
        break;
      case 3:
        event.topic = take_bytes(reader);
        break;
      case 4:
        any = take_bytes(reader);
        break;
      default:
        reader.skip();
    }
    return {};
  }));
  const bool known = event.topic.starts_with("/snapshot/") || event.topic.starts_with("/images/") ||
                     event.topic.starts_with("/content/");
  if (known) {
    TRY(decode_event_payload(any, event));
  }
  return event;
}

}  // namespace imagefs_guard::wire
