#include "agent/wire/yaml.h"

#include <yaml-cpp/yaml.h>

#include <charconv>
#include <exception>
#include <memory>
#include <nlohmann/json.hpp>
#include <system_error>

namespace imagefs_guard {

namespace {

using Json = nlohmann::json;

constexpr int kValueLimit = 100'000;

struct Budget {
  int values = kValueLimit;
  int depth = 0;
};

template <typename T>
bool read_whole(const std::string& text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

Json plain_scalar(const std::string& text) {
  if (text.empty() || text == "~" || text == "null" || text == "Null" || text == "NULL") {
    return nullptr;
  }
  if (text == "true" || text == "True" || text == "TRUE") {
    return true;
  }
  if (text == "false" || text == "False" || text == "FALSE") {
    return false;
  }
  std::int64_t integer = 0;
  if (read_whole(text, integer)) {
    return integer;
  }
  double number = 0;
  const bool numeric = text.find_first_not_of("+-.0123456789eE") == std::string::npos;
  if (numeric && read_whole(text, number)) {
    return number;
  }
  return text;
}

Error error_at(ErrorKind kind, const YAML::Mark& mark, const std::string& what) {
  return Error{kind, "line " + std::to_string(mark.line + 1) + ": " + what};
}

/// Recursion is bounded by `budget.depth`, and by yaml-cpp's own guard before it.
Result<Json> convert(const YAML::Node& node, Budget& budget) {
  if (budget.depth == 0) {
    return error_at(ErrorKind::InvalidArgument, node.Mark(), "nested too deep");
  }
  if (--budget.values < 0) {
    return error_at(ErrorKind::ResourceExhausted, node.Mark(), "too many values");
  }
  --budget.depth;
  Json value;
  switch (node.Type()) {
    case YAML::NodeType::Undefined:
    case YAML::NodeType::Null:
      break;
    case YAML::NodeType::Scalar:
      value = node.Tag() == "!" ? Json(node.Scalar()) : plain_scalar(node.Scalar());
      break;
    case YAML::NodeType::Sequence:
      value = Json::array();
      for (const auto& element : node) {
        value.push_back(TRY(convert(element, budget)));
      }
      break;
    case YAML::NodeType::Map:
      value = Json::object();
      for (const auto& member : node) {
        if (!member.first.IsScalar()) {
          return error_at(ErrorKind::InvalidArgument, member.first.Mark(), "a key is no text");
        }
        value[member.first.Scalar()] = TRY(convert(member.second, budget));
      }
      break;
  }
  ++budget.depth;
  return value;
}

}  // namespace

Result<JsonDocument> parse_yaml(std::string_view text, JsonLimits limits) {
  if (text.size() > limits.bytes) {
    return Error{ErrorKind::ResourceExhausted,
                 "YAML of " + std::to_string(text.size()) + " bytes, more than " +
                     std::to_string(limits.bytes)};
  }
  try {
    const YAML::Node node = YAML::Load(std::string(text));
    Budget budget;
    budget.depth = limits.depth;
    auto root = std::make_shared<Json>(TRY(convert(node, budget)));
    return JsonDocument(std::shared_ptr<const void>(root, root.get()));
  } catch (const YAML::Exception& exception) {
    return error_at(ErrorKind::InvalidArgument, exception.mark, exception.msg);
  } catch (const std::exception& exception) {
    return Error{ErrorKind::InvalidArgument, exception.what()};
  }
}

}  // namespace imagefs_guard
