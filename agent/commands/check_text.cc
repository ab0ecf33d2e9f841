#include "agent/commands/check_text.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "agent/commands/text_table.h"
#include "agent/core/words.h"

namespace imagefs_guard {

namespace {

using Json = nlohmann::json;

constexpr std::size_t kShortDigest = 12;

struct Range {
  std::int64_t low = 0;
  std::int64_t high = 0;
};

/// "6.0 to 9.0 GiB", "640 MiB to 1.2 GiB", "9.0 GiB".
std::string range_text(const Range& range) {
  const std::string low = size_text(range.low);
  const std::string high = size_text(range.high);
  if (low == high) {
    return high;
  }
  const std::size_t unit = low.find(' ');
  const bool same_unit = low.substr(unit) == high.substr(high.find(' '));
  return (same_unit ? low.substr(0, unit) : low) + " to " + high;
}

std::string layers_text(const Demand& demand) {
  const std::string all = std::to_string(demand.layers);
  return demand.layers_missing == demand.layers
             ? all
             : std::to_string(demand.layers_missing) + " of " + all;
}

std::vector<std::string> row_of(const std::string& name, const PullReport& report) {
  if (report.verdict == Verdict::Unknown && report.demand.layers == 0) {
    return {name, "?", "?", "?", "?", to_string(report.verdict)};
  }
  const Demand& demand = report.demand;
  return {name,
          layers_text(demand),
          size_text(demand.download_bytes),
          range_text({.low = demand.unpack_low_bytes, .high = demand.unpack_high_bytes}),
          size_text(demand.peak_high_bytes()),
          to_string(report.verdict)};
}

std::string subject_line(const CheckReport& report, const CheckSubject& subject) {
  std::string line = subject.name;
  if (const auto& device = report.node.image_filesystem) {
    line += ": " + gib_text(device->capacity_bytes) + " GiB, " + gib_text(device->available_bytes) +
            " free, floor " + gib_text(report.node.floor.bytes) + " (" + report.node.floor.source +
            ")";
    if (report.node.outstanding_bytes > 0) {
      line += ", " + gib_text(report.node.outstanding_bytes) + " promised to pulls under way";
    }
  }
  return subject.assumption.empty() ? line : line + "; assumed: " + subject.assumption;
}

std::string layer_table(const CheckedImage& image, const TableStyle& style) {
  TextTable table(
      {{"LAYER"}, {"BLOB", true}, {"UNPACKED", true}, {"INODES", true}, {"SIZE FROM"}, {"STATE"}});
  for (const LayerDemand& layer : image.layers) {
    const bool counted =
        layer.presence == LayerPresence::Missing || layer.presence == LayerPresence::Downloaded;
    table.add(
        {to_string(layer.digest).substr(std::string("sha256:").size(), kShortDigest),
         size_text(layer.compressed_bytes),
         counted ? range_text({.low = layer.size.low_bytes, .high = layer.size.high_bytes}) : "-",
         counted ? std::to_string(layer.size.inodes) : "-",
         counted ? to_string(layer.size.source) : "-",
         to_string(layer.presence)});
  }
  return table.print(style.columns);
}

std::string layers_of(const CheckReport& report, const TableStyle& style) {
  std::string text;
  for (const CheckedImage& image : report.images) {
    if (!image.layers.empty()) {
      text += "\n" + image.report.image + "\n" + layer_table(image, style);
    }
  }
  return text;
}

Json band(std::int64_t low, std::int64_t mid, std::int64_t high) {
  return {{"low", low}, {"mid", mid}, {"high", high}};
}

Json volume_json(const PullReport& report) {
  return report.smallest_volume_gib > 0 ? Json(report.smallest_volume_gib) : Json(nullptr);
}

Json demand_json(const Demand& demand) {
  return {{"downloadBytes", demand.download_bytes},
          {"inodes", demand.inodes},
          {"layers", demand.layers},
          {"layersMissing", demand.layers_missing},
          {"layersOfUnknownSize", demand.layers_by_prior},
          {"peakBytes",
           band(demand.download_bytes + demand.unpack_low_bytes,
                demand.peak_mid_bytes(),
                demand.peak_high_bytes())},
          {"reservedBytes", demand.reserved_bytes},
          {"unpackedBytes",
           band(demand.unpack_low_bytes, demand.unpack_mid_bytes, demand.unpack_high_bytes)}};
}

Json layer_json(const LayerDemand& layer) {
  const bool counted =
      layer.presence == LayerPresence::Missing || layer.presence == LayerPresence::Downloaded;
  Json object{{"compressedBytes", layer.compressed_bytes},
              {"digest", to_string(layer.digest)},
              {"downloadBytes", layer.download_bytes},
              {"inodes", nullptr},
              {"sizeFrom", nullptr},
              {"state", to_string(layer.presence)},
              {"unpackedBytes", nullptr}};
  if (counted) {
    object["inodes"] = layer.size.inodes;
    object["sizeFrom"] = to_string(layer.size.source);
    object["unpackedBytes"] =
        band(layer.size.low_bytes, layer.size.mid_bytes, layer.size.high_bytes);
  }
  return object;
}

Json image_json(const CheckedImage& image) {
  const PullReport& report = image.report;
  Json object{{"digest", nullptr},
              {"image", report.image},
              {"layers", Json::array()},
              {"needs", nullptr},
              {"sentence", report.sentence},
              {"verdict", to_string(report.verdict)}};
  if (!report.manifest_digest.is_zero()) {
    object["digest"] = to_string(report.manifest_digest);
  }
  if (report.verdict != Verdict::Unknown) {
    object["needs"] = demand_json(report.demand);
  }
  for (const LayerDemand& layer : image.layers) {
    object["layers"].push_back(layer_json(layer));
  }
  return object;
}

Json node_json(const CheckReport& report, const CheckSubject& subject) {
  Json object{{"assumption", subject.assumption.empty() ? Json(nullptr) : Json(subject.assumption)},
              {"availableBytes", nullptr},
              {"blindSpots", report.node.blind_spots},
              {"capacityBytes", nullptr},
              {"floorBytes", nullptr},
              {"floorFrom", nullptr},
              {"name", subject.name},
              {"promisedBytes", report.node.outstanding_bytes},
              {"reclaimableBytes", report.node.reclaimable_bytes}};
  if (const auto& device = report.node.image_filesystem) {
    object["availableBytes"] = device->available_bytes;
    object["capacityBytes"] = device->capacity_bytes;
    object["floorBytes"] = report.node.floor.bytes;
    object["floorFrom"] = report.node.floor.source;
  }
  return object;
}

}  // namespace

std::string size_text(std::int64_t bytes) {
  if (bytes >= kGib) {
    return gib_text(bytes) + " GiB";
  }

  struct Unit {
    std::int64_t bytes;
    const char* name;
  };

  for (const Unit& unit : {Unit{1 << 20, " MiB"}, Unit{1 << 10, " KiB"}}) {
    if (bytes >= 100 * unit.bytes) {
      return std::to_string((bytes + unit.bytes / 2) / unit.bytes) + unit.name;
    }
    if (bytes >= unit.bytes) {
      const std::int64_t tenths = (bytes * 10 + unit.bytes / 2) / unit.bytes;
      return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + unit.name;
    }
  }
  return std::to_string(bytes) + " B";
}

std::string check_table(const CheckReport& report,
                        const CheckSubject& subject,
                        const TableStyle& style) {
  TextTable table({{"IMAGE"},
                   {"LAYERS", true},
                   {"DOWNLOAD", true},
                   {"UNPACKED", true},
                   {"PEAK", true},
                   {"VERDICT"}});
  for (const CheckedImage& image : report.images) {
    table.add(row_of(image.report.image, image.report));
  }
  if (report.images.size() > 1) {
    table.add(row_of("together", report.total));
  }
  std::string text = wrap_text(subject_line(report, subject), style.columns);
  for (const std::string& blind_spot : report.node.blind_spots) {
    text += wrap_text("not seen: " + blind_spot, style.columns);
  }
  text += "\n" + table.print(style.columns);
  if (style.layers) {
    text += layers_of(report, style);
  }
  text += "\n";
  // Of several images only those that don't fit need words of their own.
  for (const CheckedImage& image : report.images) {
    if (report.images.size() == 1 || image.report.verdict != Verdict::Fits) {
      text += wrap_text(image.report.image + " " + image.report.sentence, style.columns);
    }
  }
  if (report.images.size() > 1) {
    text += wrap_text("Together: " + report.total.sentence, style.columns);
  }
  if (report.total.smallest_volume_gib > 0) {
    text += wrap_text("Smallest volume that fits" +
                          std::string(report.images.size() > 1 ? " all of them" : "") + ": " +
                          std::to_string(report.total.smallest_volume_gib) + " GiB",
                      style.columns);
  }
  return text;
}

std::string check_json(const CheckReport& report, const CheckSubject& subject) {
  Json images = Json::array();
  for (const CheckedImage& image : report.images) {
    images.push_back(image_json(image));
  }
  const Json object{{"fits", report.verdict == Verdict::Fits},
                    {"images", std::move(images)},
                    {"node", node_json(report, subject)},
                    {"smallestVolumeGib", volume_json(report.total)},
                    {"total", demand_json(report.total.demand)},
                    {"v", 1},
                    {"verdict", to_string(report.verdict)}};
  return object.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace imagefs_guard
