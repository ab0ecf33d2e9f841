#include "agent/wire/json.h"

#include <cmath>
#include <exception>
#include <limits>
#include <nlohmann/json.hpp>

namespace imagefs_guard {

namespace {

using Json = nlohmann::json;

const Json* as_json(const void* node) {
  return static_cast<const Json*>(node);
}

/// Bounds the nesting before the parser sees it. Brackets inside strings don't count.
bool deeper_than(std::string_view text, int limit) {
  int depth = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') {
        ++i;
      } else if (c == '"') {
        in_string = false;
      }
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      if (++depth > limit) {
        return true;
      }
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return false;
}

bool keep_all(int /*depth*/, Json::parse_event_t /*event*/, Json& /*parsed*/) {
  return true;
}

bool skip_managed_fields(int /*depth*/, Json::parse_event_t event, Json& parsed) {
  return event != Json::parse_event_t::key || parsed != "managedFields";
}

using Filter = bool (*)(int, Json::parse_event_t, Json&);

Result<JsonDocument> parse_filtered(std::string_view text, JsonLimits limits, Filter filter) {
  if (text.size() > limits.bytes) {
    return Error{ErrorKind::ResourceExhausted,
                 "JSON of " + std::to_string(text.size()) + " bytes, more than " +
                     std::to_string(limits.bytes)};
  }
  if (deeper_than(text, limits.depth)) {
    return Error{ErrorKind::InvalidArgument,
                 "JSON nested deeper than " + std::to_string(limits.depth)};
  }
  try {
    auto root = std::make_shared<Json>();
    if (filter == keep_all) {
      *root = Json::parse(text, nullptr, false);
    } else {
      *root = Json::parse(text, filter, false);
    }
    if (root->is_discarded()) {
      return Error{ErrorKind::InvalidArgument, "not JSON"};
    }
    return JsonDocument(std::shared_ptr<const void>(root, root.get()));
  } catch (const std::exception& exception) {
    return Error{ErrorKind::InvalidArgument, exception.what()};
  }
}

}  // namespace

bool JsonView::is_null() const {
  return node_ == nullptr || as_json(node_)->is_null();
}

bool JsonView::is_object() const {
  return node_ != nullptr && as_json(node_)->is_object();
}

bool JsonView::is_array() const {
  return node_ != nullptr && as_json(node_)->is_array();
}

bool JsonView::is_string() const {
  return node_ != nullptr && as_json(node_)->is_string();
}

bool JsonView::is_number() const {
  return node_ != nullptr && as_json(node_)->is_number();
}

JsonView JsonView::operator[](std::string_view key) const {
  if (!is_object()) {
    return {};
  }
  const auto& object = *as_json(node_)->get_ptr<const Json::object_t*>();
  const auto found = object.find(key);
  return found == object.end() ? JsonView() : JsonView(&found->second);
}

std::size_t JsonView::size() const {
  return is_object() || is_array() ? as_json(node_)->size() : 0;
}

JsonView JsonView::at(std::size_t index) const {
  if (!is_array()) {
    return {};
  }
  const auto& array = *as_json(node_)->get_ptr<const Json::array_t*>();
  return index < array.size() ? JsonView(&array[index]) : JsonView();
}

void JsonView::for_each_member(const std::function<void(std::string_view, JsonView)>& visit) const {
  if (!is_object()) {
    return;
  }
  for (const auto& [key, value] : *as_json(node_)->get_ptr<const Json::object_t*>()) {
    visit(key, JsonView(&value));
  }
}

std::string_view JsonView::text() const {
  return is_string() ? std::string_view(*as_json(node_)->get_ptr<const Json::string_t*>())
                     : std::string_view();
}

std::optional<std::int64_t> JsonView::integer() const {
  if (node_ == nullptr || !as_json(node_)->is_number_integer()) {
    return std::nullopt;
  }
  if (const auto* value = as_json(node_)->get_ptr<const Json::number_unsigned_t*>()) {
    if (*value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      return std::nullopt;
    }
    return static_cast<std::int64_t>(*value);
  }
  return *as_json(node_)->get_ptr<const Json::number_integer_t*>();
}

std::optional<double> JsonView::number() const {
  if (!is_number()) {
    return std::nullopt;
  }
  return as_json(node_)->get<double>();
}

std::optional<bool> JsonView::boolean() const {
  if (node_ == nullptr || !as_json(node_)->is_boolean()) {
    return std::nullopt;
  }
  return *as_json(node_)->get_ptr<const Json::boolean_t*>();
}

std::string JsonView::scalar_text() const {
  if (is_string()) {
    return std::string(text());
  }
  if (is_null() || is_object() || is_array()) {
    return {};
  }
  return as_json(node_)->dump();
}

const char* JsonView::type_name() const {
  if (is_null()) {
    return "nothing";
  }
  if (is_object()) {
    return "an object";
  }
  if (is_array()) {
    return "a list";
  }
  if (is_string()) {
    return "a string";
  }
  return is_number() ? "a number" : "a boolean";
}

Result<JsonDocument> parse_json(std::string_view text, JsonLimits limits) {
  return parse_filtered(text, limits, keep_all);
}

Result<JsonDocument> parse_kube_object(std::string_view text, JsonLimits limits) {
  return parse_filtered(text, limits, skip_managed_fields);
}

}  // namespace imagefs_guard
