#include "agent/commands/node_type.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <system_error>

#include "agent/core/words.h"

namespace imagefs_guard {

namespace {

constexpr std::int64_t kGib = std::int64_t{1} << 30;
constexpr std::int64_t kVolumeGibMaximum = 65'536;

/// mkfs.xfs' log at these sizes; measured: a 100 GiB volume has 26,198,016 blocks.
constexpr std::int64_t kXfsLogBytes = 64 * kMib;
/// An empty XFS of 20 GiB has 99.1 % of its capacity available.
constexpr std::int64_t kXfsEmptyPermille = 991;

constexpr ThresholdValue kTenPercent{.quantity = 0, .fraction_bits = 0x3dcccccd};
constexpr ThresholdValue kFifteenPercent{.quantity = 0, .fraction_bits = 0x3e19999a};

struct NodeType {
  const char* key;
  const char* name;
  std::int64_t default_gib;
  /// Assumed: operating system (AL2023 has one volume for all) and the add-ons' images.
  std::int64_t used_bytes;
  bool upstream_thresholds;  // nodeadm sets nodefs.available alone, the others leave the defaults
  bool discards_unpacked_layers;
};

constexpr std::array kNodeTypes = {
    NodeType{.key = "al2023",
             .name = "EKS AL2023",
             .default_gib = 20,
             .used_bytes = 4 * kGib,
             .upstream_thresholds = false,
             .discards_unpacked_layers = true},
    NodeType{.key = "bottlerocket",
             .name = "EKS Bottlerocket",
             .default_gib = 20,
             .used_bytes = 1 * kGib,
             .upstream_thresholds = true,
             .discards_unpacked_layers = false},
    // Auto Mode runs a kind of Bottlerocket; its data volume and defaults are not verified.
    NodeType{.key = "auto",
             .name = "EKS Auto Mode",
             .default_gib = 80,
             .used_bytes = 1 * kGib,
             .upstream_thresholds = true,
             .discards_unpacked_layers = false},
};

Result<std::int64_t> parse_gib(std::string_view text) {
  std::int64_t gib = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), gib);
  if (error != std::errc() || end != text.data() + text.size() || gib < 1 ||
      gib > kVolumeGibMaximum) {
    return Error{ErrorKind::InvalidArgument,
                 "the volume of a node type is a whole number of GiB up to 65536, not \"" +
                     std::string(text) + "\""};
  }
  return gib;
}

VolumeModel make_volume(const NodeType& type, std::int64_t gib) {
  const std::int64_t capacity = gib * kGib - kXfsLogBytes;
  VolumeModel volume{
      .name = std::string(type.name) + " with " + std::to_string(gib) + " GiB",
      .capacity_bytes = capacity,
      .available_bytes =
          std::max<std::int64_t>(capacity / 1000 * kXfsEmptyPermille - type.used_bytes, 0),
      .thresholds = {{.signal = EvictionSignal::NodefsAvailable, .value = kTenPercent}},
      .discards_unpacked_layers = type.discards_unpacked_layers,
      .assumption = std::to_string(type.used_bytes / kGib) + " GiB used from the start"};
  if (type.upstream_thresholds) {
    volume.thresholds.push_back(
        {.signal = EvictionSignal::ImagefsAvailable, .value = kFifteenPercent});
  }
  return volume;
}

}  // namespace

Result<VolumeModel> parse_node_type(std::string_view text) {
  const std::size_t colon = text.find(':');
  const std::string_view key = text.substr(0, colon);
  const auto type = std::ranges::find(kNodeTypes, key, &NodeType::key);
  if (type == kNodeTypes.end()) {
    return Error{ErrorKind::InvalidArgument,
                 "there is no node type \"" + std::string(key) +
                     "\"; there are: al2023, bottlerocket, auto, each with :GIB for another size"};
  }
  const std::int64_t gib =
      colon == std::string_view::npos ? type->default_gib : TRY(parse_gib(text.substr(colon + 1)));
  return make_volume(*type, gib);
}

}  // namespace imagefs_guard
