#include "agent/commands/status_text.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "agent/commands/text_table.h"
#include "agent/core/words.h"
#include "agent/wire/json.h"

namespace imagefs_guard {

namespace {

constexpr std::int64_t kStatusVersion = 1;
constexpr int kBarColumnsMaximum = 76;

/// Without control characters, of ASCII and of C1: a name must not steer the terminal.
std::string plain(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    const bool c1 = c == 0xc2 && i + 1 < text.size() &&
                    static_cast<unsigned char>(text[i + 1]) >= 0x80 &&
                    static_cast<unsigned char>(text[i + 1]) < 0xa0;
    i += c1 ? 1 : 0;
    out += c < 0x20 || c == 0x7f || c1 ? '?' : text[i];
  }
  return out;
}

std::string text_of(JsonView view) {
  return plain(view.text());
}

std::int64_t number_of(JsonView view) {
  return view.integer().value_or(0);
}

std::string gib(std::int64_t bytes) {
  return gib_text(bytes) + " GiB";
}

std::string gib_or_unknown(JsonView view) {
  const auto bytes = view.integer();
  return bytes.has_value() ? gib(*bytes) : "not known";
}

std::string time_text(double seconds) {
  const auto whole = static_cast<std::int64_t>(seconds + 0.5);
  return whole < 120 ? std::to_string(whole) + " s" : std::to_string(whole / 60) + " min";
}

struct Part {
  char mark;
  const char* name;
  std::optional<std::int64_t> bytes;
};

/// From left to right as the page's bar has them.
std::vector<Part> parts_of(JsonView disk, JsonView space) {
  const std::int64_t free = number_of(disk["availableBytes"]);
  const std::int64_t used = number_of(disk["capacityBytes"]) - free;
  std::vector<Part> parts;
  if (space) {
    parts = {{'I', "images in use", space["imagesBytes"].integer()},
             {'e', "everything else", std::max<std::int64_t>(number_of(space["otherBytes"]), 0)},
             {'c', "compressed layers kept", space["blobsBytes"].integer()},
             {'l', "leftovers", space["leftoverBytes"].integer()},
             {'w', "written by pulls", space["inFlightBytes"].integer()},
             {'u', "unused images", space["reclaimableBytes"].integer()}};
  } else {
    parts = {{'?', "in use, by whom is not known", used}};
  }
  const std::int64_t floor =
      std::clamp<std::int64_t>(number_of(disk["floorBytes"]), 0, std::max<std::int64_t>(free, 0));
  const std::int64_t promised = std::clamp<std::int64_t>(
      number_of(disk["outstandingBytes"]), 0, std::max<std::int64_t>(free - floor, 0));
  parts.push_back({'p', "promised to pulls", promised});
  parts.push_back({'.', "free to use", free - floor - promised});
  parts.push_back({'|', "floor", floor});
  return parts;
}

std::string bar(const std::vector<Part>& parts, std::int64_t capacity, int columns) {
  const int width = columns > 2 ? std::min(columns - 2, kBarColumnsMaximum) : kBarColumnsMaximum;
  std::string text;
  double sum = 0;
  for (const Part& part : parts) {
    sum += static_cast<double>(std::max<std::int64_t>(part.bytes.value_or(0), 0));
    const auto end = static_cast<std::size_t>(
        std::clamp(sum / static_cast<double>(std::max<std::int64_t>(capacity, 1)), 0.0, 1.0) *
            width +
        0.5);
    text.resize(std::max(end, text.size()), part.mark);
  }
  return "[" + text + "]\n";
}

std::string disk_text(JsonView status, int columns) {
  const JsonView disk = status["filesystem"];
  if (!disk) {
    return "The image filesystem can't be observed; how much is free is not known.\n";
  }
  const std::int64_t capacity = number_of(disk["capacityBytes"]);
  std::string text = wrap_text(
      text_of(disk["path"]) + ": " + gib(capacity) + ", " + gib_or_unknown(disk["availableBytes"]) +
          " free, floor " + gib_or_unknown(disk["floorBytes"]) + " (" +
          text_of(disk["floorSource"]) + "), headroom " + gib_or_unknown(disk["headroomBytes"]) +
          ", low point to come " + gib_or_unknown(disk["forecastLowBytes"]) + ", held pulls need " +
          gib_or_unknown(disk["waitingBytes"]),
      columns);
  const std::vector<Part> parts = parts_of(disk, status["space"]);
  text += bar(parts, capacity, columns);
  TextTable table({{"PART"}, {"SIZE", true}});
  for (const Part& part : parts) {
    table.add({std::string(1, part.mark) + " " + part.name,
               part.bytes.has_value() ? gib(*part.bytes) : "not known"});
  }
  text += table.print(columns);
  const std::int64_t unmeasured = number_of(status["space"]["layersUnmeasured"]);
  if (unmeasured > 0) {
    text += std::to_string(unmeasured) +
            " layers are not measured yet; their bytes are in \"everything else\"\n";
  }
  return text;
}

std::string history_text(JsonView history) {
  if (history.size() == 0) {
    return {};
  }
  std::int64_t least = number_of(history.at(0).at(1));
  for (std::size_t i = 1; i < history.size(); ++i) {
    least = std::min(least, number_of(history.at(i).at(1)));
  }
  return "in the last " + time_text(static_cast<double>(number_of(history.at(0).at(0)))) +
         " at least " + gib(least * kMib) + " were free\n";
}

std::string pods_text(JsonView pull) {
  std::string text;
  for (std::size_t i = 0; i < pull["pods"].size(); ++i) {
    text += (text.empty() ? "" : ", ") + text_of(pull["pods"].at(i));
  }
  const std::int64_t more = number_of(pull["podsMore"]);
  return more > 0 ? text + " and " + std::to_string(more) + " more" : text;
}

std::string state_text(JsonView pull) {
  if (!pull["held"].boolean().value_or(false)) {
    return text_of(pull["state"]);
  }
  const auto seconds = pull["heldSeconds"].number();
  return seconds.has_value() ? "held for " + time_text(*seconds) : "held";
}

std::string pulls_text(JsonView status, int columns) {
  const JsonView pulls = status["pulls"];
  if (pulls.size() == 0) {
    return "No pull is under way or held.\n";
  }
  TextTable table({{"IMAGE"}, {"STATE"}, {"VERDICT"}, {"PEAK", true}});
  std::string sentences;
  for (std::size_t i = 0; i < pulls.size(); ++i) {
    const JsonView pull = pulls.at(i);
    table.add({text_of(pull["image"]),
               state_text(pull),
               text_of(pull["verdict"]),
               gib_or_unknown(pull["peakBytes"])});
    const std::string pods = pods_text(pull);
    sentences += wrap_text(text_of(pull["image"]) + (pods.empty() ? "" : " for " + pods) + ": " +
                               text_of(pull["sentence"]),
                           columns);
  }
  const std::int64_t more = number_of(status["pullsMore"]);
  return table.print(columns) + (more > 0 ? "and " + std::to_string(more) + " more\n" : "") +
         sentences;
}

std::string drains_text(JsonView drains, int columns) {
  std::string text;
  for (std::size_t i = 0; i < drains.size(); ++i) {
    const JsonView drain = drains.at(i);
    text += wrap_text(
        text_of(drain["pod"]) + " (" + text_of(drain["owner"]) + "): " + text_of(drain["sentence"]),
        columns);
  }
  return text.empty() ? text : "\nPods that can't stay:\n" + text;
}

std::string findings_text(JsonView findings, int columns) {
  if (!findings) {
    return "not looked at yet\n";
  }
  std::string text;
  for (std::size_t i = 0; i < findings.size(); ++i) {
    text += wrap_text(
        "- " + text_of(findings.at(i)["sentence"]) + "; " + text_of(findings.at(i)["advice"]),
        columns);
  }
  return text.empty() ? "none\n" : text;
}

std::string blind_text(JsonView parts, int columns) {
  std::string text;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (!parts.at(i)["ok"].boolean().value_or(false)) {
      text += wrap_text(
          "not seen: " + text_of(parts.at(i)["name"]) + ": " + text_of(parts.at(i)["reason"]),
          columns);
    }
  }
  return text;
}

}  // namespace

Result<std::string> status_text(std::string_view json, int columns) {
  const auto document = parse_json(json);
  const JsonView status = document ? document->root() : JsonView();
  if (!document || !status["parts"].is_array()) {
    return Error{ErrorKind::InvalidArgument, "what answers there is no imagefs-guard agent"};
  }
  if (status["v"].integer() != kStatusVersion) {
    return Error{ErrorKind::InvalidArgument,
                 "the agent speaks version " + status["v"].scalar_text() +
                     " of the status, this command version " + std::to_string(kStatusVersion)};
  }
  const std::string stage = status["stage"] ? text_of(status["stage"]) : "not decided yet";
  std::string text = text_of(status["node"]) + ": " + stage + ", mode " + text_of(status["mode"]) +
                     ", decided " + time_text(status["decisionAgeSeconds"].number().value_or(0)) +
                     " ago, version " + text_of(status["version"]) + "\n";
  if (!status["alive"].boolean().value_or(false)) {
    text += "The agent has stopped to decide; it has let go what it held.\n";
  }
  for (std::size_t i = 0; i < status["reasons"].size(); ++i) {
    text += wrap_text("- " + text_of(status["reasons"].at(i)), columns);
  }
  text += blind_text(status["parts"], columns);
  text += "\n" + disk_text(status, columns) + history_text(status["history"]);
  text += "\n" + pulls_text(status, columns) + drains_text(status["drains"], columns);
  text += "\nFindings:" + std::string(status["findings"].size() > 0 ? "\n" : " ") +
          findings_text(status["findings"], columns);
  return text;
}

}  // namespace imagefs_guard
