#include "agent/core/words.h"

#include "agent/core/unpacked_size.h"

namespace imagefs_guard {

namespace {

std::string layers_text(const Demand& demand) {
  std::string text = std::to_string(demand.layers) +
                     (demand.layers == 1 ? " layer, " : " layers, ") +
                     std::to_string(demand.layers - demand.layers_missing) + " here";
  if (demand.layers_by_prior > 0) {
    text += ", " + std::to_string(demand.layers_by_prior) + " of unknown unpacked size";
  }
  return text;
}

/// Below half a tenth of a GiB it would read 0.0.
std::string reserved_text(const Demand& demand) {
  return demand.reserved_bytes < kGib / 20
             ? std::string()
             : gib_text(demand.reserved_bytes) + " kept free by XFS until it is written, ";
}

/// The verdict counts with the high side; where the sizes leave doubt the low side is said too.
std::string need_text(const PullReport& report) {
  const Demand& demand = report.demand;
  const std::string low = gib_text(demand.unpack_low_bytes);
  const std::string high = gib_text(demand.unpack_high_bytes);
  const bool exact = low == high;
  return std::string(exact ? "needs " : "needs up to ") + gib_text(demand.peak_high_bytes()) +
         " GiB at its peak (" + gib_text(demand.download_bytes) + " compressed + " +
         (exact ? high : low + " to " + high) + " unpacked, " + reserved_text(demand) +
         layers_text(demand) + ")";
}

std::string node_text(const PullReport& report, const NodeReport& node) {
  if (!node.image_filesystem.has_value()) {
    return "free space is not known";
  }
  std::string text = gib_text(node.image_filesystem->available_bytes) + " GiB free";
  if (report.outstanding_bytes > 0) {
    text += ", " + gib_text(report.outstanding_bytes) + " promised to other pulls";
  }
  return text + ", floor " + gib_text(node.floor.bytes) + " GiB";
}

std::string inodes_text(const PullReport& report, const NodeReport& node) {
  const std::int64_t free = node.image_filesystem ? node.image_filesystem->inodes_free : 0;
  return "; of inodes it needs " + std::to_string(report.demand.inodes) + ", " +
         std::to_string(free) + " are free, floor " + std::to_string(node.floor.inodes);
}

std::string volume_text(const PullReport& report) {
  // A volume's size is no answer where files are too many, not too large.
  return report.smallest_volume_gib == 0 || report.by_inodes
             ? std::string()
             : ", " + std::to_string(report.smallest_volume_gib) + " GiB would do";
}

std::string verdict_text(const PullReport& report) {
  switch (report.verdict) {
    case Verdict::Unknown:
      return "can't be judged";
    case Verdict::Fits:
      return "fits";
    case Verdict::FitsAfterReclaim:
      return "fits once " + gib_text(report.reclaim_bytes) + " GiB of unused images are removed";
    case Verdict::FitsLater:
      return "fits once other pulls have settled";
    case Verdict::DoesNotFit:
      return "does not fit now" + volume_text(report);
    case Verdict::NeverFits:
      return "never fits this volume" + volume_text(report);
  }
  return "can't be judged";
}

}  // namespace

std::string gib_text(std::int64_t bytes) {
  const bool negative = bytes < 0;
  const std::int64_t magnitude = negative ? -bytes : bytes;
  const int decimals = magnitude >= kGib ? 1 : 2;
  const std::int64_t scale = decimals == 1 ? 10 : 100;
  // Split, so that no product overflows: whole GiB and the rest apart.
  std::int64_t whole = magnitude / kGib;
  std::int64_t part = ((magnitude % kGib) * scale + kGib / 2) / kGib;
  if (part == scale) {
    part = 0;
    ++whole;
  }
  std::string digits = std::to_string(part);
  while (static_cast<int>(digits.size()) < decimals) {
    digits.insert(0, "0");
  }
  return (negative ? "-" : "") + std::to_string(whole) + "." + digits;
}

std::string verdict_sentence(const PullReport& report, const NodeReport& node) {
  return need_text(report) + "; " + node_text(report, node) +
         (report.by_inodes ? inodes_text(report, node) : std::string()) + "; " +
         verdict_text(report);
}

std::string size_sources_text(const Demand& demand) {
  std::string text;
  for (std::size_t i = 0; i < demand.layers_by_source.size(); ++i) {
    if (demand.layers_by_source[i] > 0) {
      text += (text.empty() ? "" : ", ") + std::to_string(demand.layers_by_source[i]) + " " +
              to_string(static_cast<SizeSource>(i));
    }
  }
  return text;
}

std::string shorten(const std::string& text, std::size_t limit) {
  constexpr const char* kMark = "…";
  constexpr std::size_t kMarkBytes = 3;
  if (text.size() <= limit) {
    return text;
  }
  std::size_t end = limit < kMarkBytes ? 0 : limit - kMarkBytes;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0U) == 0x80U) {
    --end;
  }
  return text.substr(0, end) + kMark;
}

}  // namespace imagefs_guard
