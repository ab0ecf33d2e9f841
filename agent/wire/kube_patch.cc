#include "agent/wire/kube_patch.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "agent/wire/json_text.h"
#include "agent/wire/time_text.h"

namespace imagefs_guard {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kNodeBytesLimit = std::size_t{4} << 20;
constexpr std::size_t kNoteLimit = 1024;  // events.k8s.io/v1 validation, as the ones below
constexpr std::size_t kEventTextLimit = 128;
constexpr std::size_t kConditionMessageLimit = std::size_t{32} << 10;
constexpr const char* kConditionType = "ImageFilesystemRisk";

const char* effect_name(TaintEffect effect) {
  switch (effect) {
    case TaintEffect::None:
      return "";
    case TaintEffect::PreferNoSchedule:
      return "PreferNoSchedule";
    case TaintEffect::NoSchedule:
      return "NoSchedule";
  }
  return "";
}

const char* status_name(ConditionStatus status) {
  switch (status) {
    case ConditionStatus::True:
      return "True";
    case ConditionStatus::False:
      return "False";
    case ConditionStatus::Unknown:
      return "Unknown";
  }
  return "Unknown";
}

std::string text_of(const Json& object, const char* key) {
  const auto it = object.is_object() ? object.find(key) : object.end();
  return it != object.end() && it->is_string() ? it->get<std::string>() : std::string();
}

Json add_operation(const std::string& path, const Json& value) {
  return Json{{"op", "add"}, {"path", path}, {"value", value}};
}

Json wanted_taint(const SetTaint& wanted) {
  Json taint = {{"key", wanted.key}, {"effect", effect_name(wanted.effect)}};
  if (!wanted.value.empty()) {
    taint["value"] = wanted.value;
  }
  return taint;
}

bool is_wanted(const Json& taint, const SetTaint& wanted) {
  return text_of(taint, "effect") == effect_name(wanted.effect) &&
         text_of(taint, "value") == wanted.value;
}

Error bad_node(const std::string& what) {
  return Error{ErrorKind::Internal, "node from the API server: " + what};
}

/// The operations behind the tests, or none if the list is right already.
Json taint_operations(const Json& taints, const SetTaint& wanted) {
  Json operations = Json::array();
  bool present = false;
  // From the end, so that removing does not move what is still to be removed.
  for (std::size_t i = taints.size(); i > 0; --i) {
    const Json& taint = taints[i - 1];
    if (text_of(taint, "key") != wanted.key) {
      continue;
    }
    if (wanted.effect != TaintEffect::None && !present && is_wanted(taint, wanted)) {
      present = true;
      continue;
    }
    operations.push_back(
        Json{{"op", "remove"}, {"path", json_pointer({"spec", "taints", std::to_string(i - 1)})}});
  }
  if (wanted.effect != TaintEffect::None && !present) {
    operations.push_back(
        add_operation(json_pointer({"spec", "taints", "-"}), wanted_taint(wanted)));
  }
  return operations;
}

/// Bytes of the UTF-8 character at the front, 0 if there is none (RFC 3629: no surrogates, nothing
/// over-long, nothing past U+10FFFF).
std::size_t utf8_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) {
    return 1;
  }
  const std::size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < length) {
    return 0;
  }
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0U) != 0x80) {
      return 0;
    }
  }
  const bool over_long = (lead == 0xE0 && byte(1) < 0xA0) || (lead == 0xF0 && byte(1) < 0x90);
  const bool not_a_character = (lead == 0xED && byte(1) > 0x9F) || (lead == 0xF4 && byte(1) > 0x8F);
  return over_long || not_a_character ? 0 : length;
}

template <typename Map>
Json nullable_members(const Map& values) {
  Json members = Json::object();
  for (const auto& [key, value] : values) {
    members[key] = value.has_value() ? Json(*value) : Json(nullptr);
  }
  return members;
}

}  // namespace

Result<std::optional<std::string>> taint_patch(std::string_view node_json, const SetTaint& wanted) {
  if (node_json.size() > kNodeBytesLimit) {
    return bad_node("more than " + std::to_string(kNodeBytesLimit) + " bytes");
  }
  const Json node = Json::parse(node_json, nullptr, false);
  if (!node.is_object() || !node.contains("metadata")) {
    return bad_node("no object with metadata");
  }
  const std::string uid = text_of(node["metadata"], "uid");
  const std::string resource_version = text_of(node["metadata"], "resourceVersion");
  if (uid.empty() || resource_version.empty()) {
    return bad_node("no uid or resourceVersion");
  }
  const auto spec = node.find("spec");
  const bool has_spec = spec != node.end() && spec->is_object();
  const Json taints = has_spec && spec->contains("taints") ? (*spec)["taints"] : Json(nullptr);
  if (!taints.is_null() && !taints.is_array()) {
    return bad_node("spec.taints is no list");
  }
  Json patch = Json::array();
  patch.push_back(test_operation("/metadata/uid", uid));
  if (taints.empty()) {
    if (wanted.effect == TaintEffect::None) {
      return std::optional<std::string>();
    }
    // There is no list to test: pin the whole object.
    patch.push_back(test_operation("/metadata/resourceVersion", resource_version));
    const Json list = Json::array({wanted_taint(wanted)});
    patch.push_back(has_spec ? add_operation("/spec/taints", list)
                             : add_operation("/spec", Json{{"taints", list}}));
    return std::optional(compact_text(patch));
  }
  const Json operations = taint_operations(taints, wanted);
  if (operations.empty()) {
    return std::optional<std::string>();
  }
  patch.push_back(test_operation("/spec/taints", taints));
  patch.insert(patch.end(), operations.begin(), operations.end());
  return std::optional(compact_text(patch));
}

std::string metadata_patch(const SetNodeMetadata& wanted) {
  Json metadata = Json::object();
  if (!wanted.labels.empty()) {
    metadata["labels"] = nullable_members(wanted.labels);
  }
  if (!wanted.annotations.empty()) {
    metadata["annotations"] = nullable_members(wanted.annotations);
  }
  return compact_text(Json{{"metadata", metadata}});
}

std::string condition_patch(const SetCondition& wanted, WallTime now) {
  Json condition = {
      {"type", kConditionType},
      {"status", status_name(wanted.status)},
      {"reason", wanted.condition_reason},
      {"message", cut_utf8(wanted.message, kConditionMessageLimit)},
      {"lastHeartbeatTime", format_rfc3339(now)},
  };
  if (wanted.transition) {
    condition["lastTransitionTime"] = format_rfc3339(now);
  }
  Json status = Json::object();
  status["conditions"] = Json::array({condition});
  return compact_text(Json{{"status", status}});
}

std::string event_body(const EmitEvent& event, const EventOrigin& origin) {
  const ObjectReference& about = event.regarding;
  Json regarding = {
      {"apiVersion", about.api_version},
      {"kind", about.kind},
      {"name", about.name},
      {"uid", about.uid},
  };
  if (!about.namespace_name.empty()) {
    regarding["namespace"] = about.namespace_name;
  }
  const Json body = {
      {"apiVersion", "events.k8s.io/v1"},
      {"kind", "Event"},
      {"metadata", {{"name", origin.name}, {"namespace", event_namespace(about)}}},
      {"eventTime", format_rfc3339_micro(origin.time)},
      {"type", event.warning ? "Warning" : "Normal"},
      {"reason", cut_utf8(event.event_reason, kEventTextLimit)},
      {"action", cut_utf8(event.event_action, kEventTextLimit)},
      {"note", cut_utf8(event.note, kNoteLimit)},
      {"reportingController", origin.reporting_controller},
      {"reportingInstance", cut_utf8(origin.reporting_instance, kEventTextLimit)},
      {"regarding", regarding},
  };
  return compact_text(body);
}

std::string event_namespace(const ObjectReference& regarding) {
  return regarding.namespace_name.empty() ? "default" : regarding.namespace_name;
}

std::string event_series_patch(std::int64_t count, WallTime now) {
  const Json series = {{"count", count}, {"lastObservedTime", format_rfc3339_micro(now)}};
  return compact_text(Json{{"series", series}});
}

std::string json_pointer(const std::vector<std::string>& path) {
  std::string pointer;
  for (const std::string& part : path) {
    pointer += '/';
    for (const char c : part) {
      if (c == '~') {
        pointer += "~0";
      } else if (c == '/') {
        pointer += "~1";
      } else {
        pointer += c;
      }
    }
  }
  return pointer;
}

std::string cut_utf8(std::string_view text, std::size_t limit) {
  std::string cut;
  cut.reserve(std::min(text.size(), limit));
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    const std::size_t bytes = std::max<std::size_t>(length, 1);
    if (cut.size() + bytes > limit) {
      break;
    }
    if (length == 0) {
      cut += '?';
    } else {
      cut += text.substr(0, length);
    }
    text.remove_prefix(bytes);
  }
  return cut;
}

}  // namespace imagefs_guard
