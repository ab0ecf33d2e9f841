#pragma once
/// A read-only view of JSON that can't fail: an absent member, a wrong type and a number that does
/// not fit all read as absent. Lets every parser of this folder stay free of exceptions, and keeps
/// the costly library header in json.cc alone. Depth and size are bounded before parsing.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "agent/core/result.h"

namespace imagefs_guard {

/// Points into a JsonDocument, which must outlive it. A default one is absent.
class JsonView {
 public:
  JsonView() = default;

  explicit JsonView(const void* node) : node_(node) {}

  /// Present and not null.
  explicit operator bool() const { return !is_null(); }

  [[nodiscard]] bool is_null() const;
  [[nodiscard]] bool is_object() const;
  [[nodiscard]] bool is_array() const;
  [[nodiscard]] bool is_string() const;
  [[nodiscard]] bool is_number() const;

  /// Member of an object; absent if there is none, or this is no object.
  [[nodiscard]] JsonView operator[](std::string_view key) const;
  /// Elements of an array or members of an object; 0 for everything else.
  [[nodiscard]] std::size_t size() const;
  /// Element of an array; absent past its end.
  [[nodiscard]] JsonView at(std::size_t index) const;
  /// Members in the order of their names.
  void for_each_member(const std::function<void(std::string_view, JsonView)>& visit) const;

  /// Empty if this is no string. The text lives as long as the document.
  [[nodiscard]] std::string_view text() const;
  /// A number without fraction or exponent that fits; anything else is nullopt.
  [[nodiscard]] std::optional<std::int64_t> integer() const;
  /// Any number.
  [[nodiscard]] std::optional<double> number() const;
  [[nodiscard]] std::optional<bool> boolean() const;
  /// A string as it is, a number or bool as JSON spells it, else empty.
  [[nodiscard]] std::string scalar_text() const;
  /// "an object", "a string", "nothing": for error messages.
  [[nodiscard]] const char* type_name() const;

 private:
  const void* node_ = nullptr;
};

/// Owns a parsed text. Copies share it.
class JsonDocument {
 public:
  JsonDocument() = default;

  /// For json.cc and yaml.cc: what they parsed, with its deleter.
  explicit JsonDocument(std::shared_ptr<const void> root) : root_(std::move(root)) {}

  [[nodiscard]] JsonView root() const { return JsonView(root_.get()); }

 private:
  std::shared_ptr<const void> root_;
};

struct JsonLimits {
  std::size_t bytes = std::size_t{8} << 20;
  int depth = 64;
};

/// InvalidArgument for what is no JSON or too deep, ResourceExhausted for what is too large.
[[nodiscard]] Result<JsonDocument> parse_json(std::string_view text, JsonLimits limits = {});

/// The same for Kubernetes objects: metadata.managedFields, often half of the bytes and of no use
/// here, is skipped while parsing.
[[nodiscard]] Result<JsonDocument> parse_kube_object(std::string_view text, JsonLimits limits = {});

}  // namespace imagefs_guard
