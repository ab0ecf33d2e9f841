#include "agent/commands/node_type.h"

#include <doctest/doctest.h>

#include "agent/core/floor.h"

namespace imagefs_guard::node_type_test {
namespace {

constexpr std::int64_t kGib = std::int64_t{1} << 30;

Floor floor_of_model(const VolumeModel& volume) {
  const Filesystem device{
      .holds_images = true, .holds_kubelet = true, .capacity_bytes = volume.capacity_bytes};
  return floor_of(device, KubeletConfig{.eviction_hard = volume.thresholds}, default_policy());
}

TEST_CASE("each node type has its volume, floor and habit with blobs") {
  struct Case {
    const char* text;
    const char* name;
    std::int64_t gib;
    int floor_percent;
    bool discards;
  };

  const Case cases[] = {
      {"al2023", "EKS AL2023 with 20 GiB", 20, 10, true},
      {"al2023:50", "EKS AL2023 with 50 GiB", 50, 10, true},
      {"al2023:100", "EKS AL2023 with 100 GiB", 100, 10, true},
      {"bottlerocket", "EKS Bottlerocket with 20 GiB", 20, 15, false},
      {"auto", "EKS Auto Mode with 80 GiB", 80, 15, false},
      {"auto:65536", "EKS Auto Mode with 65536 GiB", 65536, 15, false},
  };
  for (const Case& c : cases) {
    CAPTURE(c.text);
    const auto volume = parse_node_type(c.text);
    REQUIRE(volume);
    CHECK(volume->name == c.name);
    CHECK(volume->capacity_bytes == c.gib * kGib - kGib / 16);
    CHECK(volume->available_bytes > 0);
    CHECK(volume->available_bytes < volume->capacity_bytes);
    CHECK(volume->discards_unpacked_layers == c.discards);
    CHECK(floor_of_model(*volume).bytes * 100 / volume->capacity_bytes == c.floor_percent);
    CHECK(volume->assumption.ends_with("GiB used from the start"));
  }
}

TEST_CASE("the numbers measured on XFS") {
  const auto volume = parse_node_type("al2023:100");
  REQUIRE(volume);
  CHECK(volume->capacity_bytes == std::int64_t{26'198'016} * 4096);
  CHECK(floor_of_model(*volume).bytes == 10'730'707'513);
}

TEST_CASE("a volume that the node itself fills has nothing available") {
  CHECK(parse_node_type("al2023:1").value().available_bytes == 0);
}

TEST_CASE("a mistake is one sentence") {
  for (const char* text : {"",
                           "al2",
                           "AL2023",
                           "al2023:",
                           "al2023:0",
                           "al2023:-5",
                           "al2023:20Gi",
                           "al2023:65537",
                           "al2023:99999999999999999999",
                           "auto:8 0"}) {
    CAPTURE(text);
    const auto volume = parse_node_type(text);
    REQUIRE(!volume);
    CHECK(volume.error().kind == ErrorKind::InvalidArgument);
    CHECK(volume.error().message.find('\n') == std::string::npos);
  }
}

}  // namespace
}  // namespace imagefs_guard::node_type_test
