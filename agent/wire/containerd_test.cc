#include "agent/wire/containerd.h"

#include <doctest/doctest.h>

#include <functional>
#include <protozero/pbf_writer.hpp>
#include <random>

#include "agent/wire/cri.h"

namespace imagefs_guard::wire::containerd_test {

namespace {

using Writer = protozero::pbf_writer;

std::string built(const std::function<void(Writer&)>& fill) {
  std::string message;
  Writer writer(message);
  fill(writer);
  return message;
}

Digest digest(std::uint8_t fill) {
  Digest made;
  made.bytes.fill(fill);
  return made;
}

std::string label(const char* key, const std::string& value) {
  return built([&](Writer& w) {
    w.add_string(1, key);
    w.add_string(2, value);
  });
}

std::string timestamp(std::int64_t seconds, std::int32_t nanoseconds) {
  return built([&](Writer& w) {
    w.add_int64(1, seconds);
    w.add_int32(2, nanoseconds);
  });
}

std::string image_list() {
  const std::string target = built([](Writer& w) {
    w.add_string(1, "application/vnd.oci.image.index.v1+json");
    w.add_string(2, to_string(digest(1)));
    w.add_int64(3, 4711);
  });
  const std::string image = built([&](Writer& w) {
    w.add_string(1, "docker.io/library/x:1");
    w.add_message(2, label("io.cri-containerd.image", "managed"));
    w.add_message(2, label("io.cri-containerd.pinned", "pinned"));
    w.add_message(3, target);
    w.add_message(7, timestamp(1'700'000'000, 5'000));
    w.add_message(99, std::string("unknown"));
  });
  return built([&](Writer& w) {
    w.add_message(1, image);
    w.add_message(1, built([](Writer& inner) { inner.add_string(1, "without target"); }));
  });
}

std::string snapshot(const std::string& name, int kind, const std::string& parent = "parent") {
  return built([&](Writer& w) {
    w.add_string(1, name);
    w.add_string(2, parent);
    w.add_enum(3, kind);
  });
}

std::string snapshot_list() {
  return built([](Writer& w) {
    w.add_message(1, snapshot(to_string(digest(2)), 3));
    w.add_message(1, snapshot("extract-1700-AbC_ " + to_string(digest(3)), 2));
    w.add_message(1, snapshot("a0b1c2", 2));                  // a container's
    w.add_message(1, snapshot("extract-without-digest", 2));  // nobody's
    w.add_message(1, snapshot(to_string(digest(4)), 1));      // a view
    w.add_message(1, snapshot("sha512:00", 3));
  });
}

std::string event_message() {
  const std::string payload = built([](Writer& w) {
    w.add_string(1, "extract-key");
    w.add_string(2, to_string(digest(5)));
    w.add_string(5, "overlayfs");
  });
  const std::string any = built([&](Writer& w) {
    w.add_string(1, "containerd.events.SnapshotCommit");
    w.add_bytes(2, payload);
  });
  return built([&](Writer& w) {
    w.add_message(1, timestamp(1, 2));
    w.add_string(2, "k8s.io");
    w.add_string(3, "/snapshot/commit");
    w.add_message(4, any);
  });
}

}  // namespace

TEST_CASE("requests have the documented fields") {
  CHECK(encode_one_string("") == "");
  CHECK(encode_one_string("ab") ==
        "\x0a\x02"
        "ab");
  const std::string hold = encode_write_stat("config-x", digest(0xab));
  CHECK(hold == std::string("\x12\x08"
                            "config-x"
                            "\x22\x47") +
                    to_string(digest(0xab)));
  CHECK(encode_write_blob("r", digest(0xab), "data") ==
        std::string("\x08\x02\x12\x01r\x18\x04\x22\x47") + to_string(digest(0xab)) +
            "\x32\x04"
            "data");
  CHECK(encode_snapshot_key({.snapshotter = "s", .key = "k"}) == "\x0a\x01s\x12\x01k");
  CHECK(encode_delete_lease("l", false) == "\x0a\x01l");
  CHECK(encode_delete_lease("l", true) == "\x0a\x01l\x10\x01");
  CHECK(encode_image_spec_request("i") == "\x0a\x03\x0a\x01i");
  CHECK(encode_read({.digest = digest(1), .offset_bytes = 1, .length_bytes = 2})
            .ends_with("\x10\x01\x18\x02"));
}

TEST_CASE("images: target, pinned label, time; what has no digest is left out") {
  std::vector<LocalImage> images;
  REQUIRE(decode_images(image_list(), images));
  REQUIRE(images.size() == 1);
  CHECK(images[0] == LocalImage{.name = "docker.io/library/x:1",
                                .target = digest(1),
                                .created_at = WallTime(Duration(1'700'000'000'000'005)),
                                .pinned = true});
}

TEST_CASE("snapshots: layers and extractions, nothing else") {
  SnapshotList list;
  REQUIRE(decode_snapshots(snapshot_list(), list));
  CHECK(list.layers == std::vector{LayerSnapshot{.chain_id = digest(2)}});
  CHECK(list.extracts ==
        std::vector{ExtractKey{digest(3), "extract-1700-AbC_ " + to_string(digest(3))}});
  REQUIRE(decode_snapshots(snapshot_list(), list));
  CHECK(list.layers.size() == 2);
}

TEST_CASE("snapshots: what stands on what") {
  SnapshotList list;
  REQUIRE(decode_snapshots(
      built([](Writer& w) {
        w.add_message(1, snapshot(to_string(digest(2)), 3, ""));
        w.add_message(1, snapshot(to_string(digest(3)), 3, to_string(digest(2))));
        w.add_message(1, snapshot("a0b1c2", 2, to_string(digest(3))));  // a container
        w.add_message(1, snapshot("view", 1, to_string(digest(2))));
        w.add_message(1, snapshot("extract-1-a " + to_string(digest(4)), 2, to_string(digest(3))));
      }),
      list));
  CHECK(list.layers == std::vector{LayerSnapshot{.chain_id = digest(2)},
                                   LayerSnapshot{.chain_id = digest(3), .parent = digest(2)}});
  CHECK(list.used_chains == std::vector{digest(3), digest(2), digest(3)});
  REQUIRE(list.extracts.size() == 1);
  CHECK(list.extracts[0].parent == digest(3));
}

TEST_CASE("blobs: what index, manifest and config name by their labels") {
  const auto blob = [](std::uint8_t number, const std::vector<std::string>& labels) {
    return built([&](Writer& w) {
      w.add_string(1, to_string(digest(number)));
      for (const std::string& one : labels) {
        w.add_message(5, one);
      }
    });
  };
  BlobList list;
  REQUIRE(decode_blobs(
      built([&](Writer& w) {
        w.add_message(1,
                      blob(1,
                           {label("containerd.io/gc.ref.content.m.0", to_string(digest(2))),
                            label("containerd.io/gc.ref.content.m.1", "nonsense")}));
        w.add_message(1,
                      blob(2,
                           {label("containerd.io/gc.ref.content.config", to_string(digest(3))),
                            label("containerd.io/gc.ref.content.l.0", to_string(digest(9)))}));
        w.add_message(
            1, blob(3, {label("containerd.io/gc.ref.snapshot.overlayfs", to_string(digest(4)))}));
        w.add_message(1, blob(9, {label("containerd.io/uncompressed", to_string(digest(8)))}));
      }),
      list));
  CHECK(list.blobs.size() == 4);
  REQUIRE(list.links.size() == 3);
  CHECK(list.links[0] == ContentLinks{.digest = digest(1), .manifests = {digest(2)}});
  CHECK(list.links[1] == ContentLinks{.digest = digest(2), .config = digest(3)});
  CHECK(list.links[2] ==
        ContentLinks{.digest = digest(3), .top_chain = digest(4), .snapshotter = "overlayfs"});
}

TEST_CASE("ingests and blobs") {
  const std::string status = built([](Writer& w) {
    w.add_message(1, timestamp(1, 1));
    w.add_string(3, "layer-sha256:00");
    w.add_int64(4, 10);
    w.add_int64(5, -3);
    w.add_string(6, "");
  });
  std::vector<Ingest> ingests;
  REQUIRE(decode_ingests(built([&](Writer& w) { w.add_message(1, status); }), ingests));
  const Ingest want{.ref = "layer-sha256:00", .offset_bytes = 10, .total_bytes = 0};
  CHECK(ingests == std::vector{want});
  CHECK(decode_ingest_status(built([&](Writer& w) { w.add_message(1, status); })).value() == want);

  const std::string blob = built([](Writer& w) {
    w.add_string(1, to_string(digest(7)));
    w.add_int64(2, 99);
    w.add_message(5, label("a", "b"));
  });
  const std::string other = built([](Writer& w) { w.add_string(1, "sha512:00"); });
  BlobList blobs;
  REQUIRE(decode_blobs(built([&](Writer& w) {
                         w.add_message(1, blob);
                         w.add_message(1, other);
                       }),
                       blobs));
  CHECK(blobs.blobs == std::vector{LocalBlob{digest(7), 99}});
  CHECK(blobs.links.empty());
  CHECK(decode_blob_info(built([&](Writer& w) { w.add_message(1, blob); })).value().bytes == 99);
  CHECK(decode_blob_info(built([&](Writer& w) { w.add_message(1, other); })).error().kind ==
        ErrorKind::InvalidArgument);
  CHECK(decode_read_data(built([](Writer& w) {
          w.add_int64(1, 5);
          w.add_bytes(2, "data");
        })).value() == "data");
  const auto write_status = decode_write_status(built([](Writer& w) {
    w.add_int64(4, 12);
    w.add_int64(5, 13);
  }));
  REQUIRE(write_status);
  CHECK(write_status->offset_bytes == 12);
  CHECK(write_status->total_bytes == 13);
  CHECK(decode_usage(built([](Writer& w) {
          w.add_int64(1, 1000);
          w.add_int64(2, 3);
        })).value() == SnapshotUsage{1000, 3});
}

TEST_CASE("only leases that expire are pulls'") {
  const std::string pull = built([](Writer& w) {
    w.add_string(1, "123-abc");
    w.add_message(2, timestamp(5, 0));
    w.add_message(3, label("containerd.io/gc.expire", "2030-01-01T00:00:00Z"));
  });
  const std::string sandbox = built([](Writer& w) { w.add_string(1, "sandbox"); });
  std::vector<PullLease> leases;
  REQUIRE(decode_leases(built([&](Writer& w) {
                          w.add_message(1, sandbox);
                          w.add_message(1, pull);
                        }),
                        leases));
  REQUIRE(leases.size() == 1);
  CHECK(leases[0].id == "123-abc");
  CHECK(leases[0].created_at == WallTime(std::chrono::seconds(5)));

  const auto resource = [](const std::string& id, const char* type) {
    return built([&](Writer& w) {
      w.add_string(1, id);
      w.add_string(2, type);
    });
  };
  const LeaseResources resources =
      decode_lease_resources(built([&](Writer& w) {
        w.add_message(1, resource(to_string(digest(1)), "content"));
        w.add_message(1, resource("layer-x", "ingests"));
        w.add_message(1, resource(to_string(digest(2)), "snapshots/overlayfs"));
      })).value();
  CHECK(resources.content == std::vector{digest(1)});
  CHECK(resources.ingest_refs == std::vector<std::string>{"layer-x"});
}

TEST_CASE("events carry topic, key and name") {
  CHECK(decode_event(event_message()).value() == ContainerdEvent{.containerd_namespace = "k8s.io",
                                                                 .topic = "/snapshot/commit",
                                                                 .key = "extract-key",
                                                                 .name = to_string(digest(5)),
                                                                 .snapshotter = "overlayfs"});
  CHECK(decode_version(built([](Writer& w) { w.add_string(1, "1.6.20"); })).value() == "1.6.20");
}

TEST_CASE("CRI replies") {
  const CriVersion version = decode_cri_version(built([](Writer& w) {
                               w.add_string(2, "containerd");
                               w.add_string(3, "1.6.20");
                               w.add_string(4, "v1");
                             })).value();
  CHECK(version == CriVersion{"containerd", "1.6.20", "v1"});
  const std::string usage = built([](Writer& w) {
    w.add_message(2, built([](Writer& id) { id.add_string(1, "/var/lib/x"); }));
    w.add_message(3, built([](Writer& value) { value.add_uint64(1, 77); }));
  });
  CHECK(decode_image_fs_info(built([&](Writer& w) { w.add_message(1, usage); })).value() ==
        std::vector{CriFilesystemUsage{"/var/lib/x", 77, 0}});
  const std::string image = built([](Writer& w) {
    w.add_string(1, "sha256:1");
    w.add_string(2, "a:1");
    w.add_string(3, "a@sha256:2");
    w.add_uint64(4, 12);
    w.add_bool(8, true);
  });
  CHECK(decode_cri_images(built([&](Writer& w) { w.add_message(1, image); })).value() ==
        std::vector{CriImage{"sha256:1", {"a:1"}, {"a@sha256:2"}, 12, true}});
  const std::string condition = built([](Writer& w) {
    w.add_string(1, "RuntimeReady");
    w.add_bool(2, true);
  });
  const CriStatus status =
      decode_cri_status(built([&](Writer& w) {
        w.add_message(1, built([&](Writer& s) { s.add_message(1, condition); }));
        w.add_message(2, label("config", "{}"));
      })).value();
  CHECK(status.conditions == std::vector{CriCondition{"RuntimeReady", true, "", ""}});
  CHECK(status.info.at("config") == "{}");
}

TEST_CASE("wrong wire types, cut and random messages never get through as a crash") {
  // Field 1 as a varint where a message is expected, and the other way round.
  BlobList blobs;
  CHECK(decode_blobs(built([](Writer& w) { w.add_int64(1, 5); }), blobs));
  CHECK(decode_usage(built([](Writer& w) { w.add_string(1, "x"); })).value() == SnapshotUsage{});

  const auto decode_all = [](std::string_view message) {
    std::vector<LocalImage> images;
    BlobList some_blobs;
    std::vector<Ingest> ingests;
    std::vector<PullLease> leases;
    SnapshotList snapshots;
    int failures = 0;
    failures += decode_images(message, images) ? 0 : 1;
    failures += decode_blobs(message, some_blobs) ? 0 : 1;
    failures += decode_ingests(message, ingests) ? 0 : 1;
    failures += decode_leases(message, leases) ? 0 : 1;
    failures += decode_snapshots(message, snapshots) ? 0 : 1;
    failures += decode_lease_resources(message) ? 0 : 1;
    failures += decode_event(message) ? 0 : 1;
    failures += decode_usage(message) ? 0 : 1;
    failures += decode_cri_status(message) ? 0 : 1;
    failures += decode_cri_images(message) ? 0 : 1;
    failures += decode_image_fs_info(message) ? 0 : 1;
    return failures;
  };
  int failures = 0;
  std::mt19937_64 random(1);
  for (const std::string& whole : {image_list(), snapshot_list(), event_message()}) {
    for (std::size_t length = 0; length <= whole.size(); ++length) {
      failures += decode_all(std::string_view(whole).substr(0, length));
    }
    for (int round = 0; round < 2000; ++round) {
      std::string changed = whole;
      changed[random() % changed.size()] = static_cast<char>(random());
      failures += decode_all(changed);
    }
  }
  CHECK(failures > 0);
}

TEST_CASE("lists have limits") {
  std::string many;
  Writer writer(many);
  for (std::size_t i = 0; i <= kIngestsLimit; ++i) {
    writer.add_message(1, std::string());
  }
  std::vector<Ingest> ingests;
  CHECK(decode_ingests(many, ingests).error().kind == ErrorKind::ResourceExhausted);
}

}  // namespace imagefs_guard::wire::containerd_test
