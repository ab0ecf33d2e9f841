#pragma once
/// The one way an operation says that it failed: a value or an Error, never both.
/// Everything that can fail returns Result<T>; TRY() hands the error to the caller. A subset of
/// std::expected's members, so that it can become an alias once C++23 is here.

#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>

#include "agent/core/verify.h"

namespace imagefs_guard {

/// What went wrong, in gRPC's words. Planner and logs use the same names.
enum class ErrorKind {
  Cancelled,
  InvalidArgument,
  DeadlineExceeded,
  NotFound,
  AlreadyExists,
  PermissionDenied,
  Unauthenticated,
  ResourceExhausted,
  FailedPrecondition,
  Aborted,
  Unimplemented,
  Unavailable,
  Internal,
};

/// Stable name of the kind, as it stands in logs and metrics: "NotFound".
[[nodiscard]] const char* to_string(ErrorKind kind);

/// It may work when tried again later, with nothing changed on our side.
[[nodiscard]] constexpr bool is_transient(ErrorKind kind) {
  return kind == ErrorKind::Unavailable || kind == ErrorKind::DeadlineExceeded ||
         kind == ErrorKind::ResourceExhausted;
}

/// A failure with its cause, outside-in: "list images: connect: Permission denied".
struct [[nodiscard]] Error {
  ErrorKind kind = ErrorKind::Internal;
  std::string message;

  bool operator==(const Error&) const = default;
};

/// Puts the caller's context in front: one place per layer does it.
[[nodiscard]] inline Error with_context(Error error, const std::string& context) {
  error.message.insert(0, ": ");
  error.message.insert(0, context);
  return error;
}

template <typename T>
class [[nodiscard]] Result {
  static_assert(!std::is_reference_v<T>, "a Result owns its value");

 public:
  using value_type = T;

  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}

  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  [[nodiscard]] bool has_value() const { return state_.index() == 0; }

  explicit operator bool() const { return has_value(); }

  [[nodiscard]] T& value() & {
    VERIFY(has_value());
    return std::get<0>(state_);
  }

  [[nodiscard]] const T& value() const& {
    VERIFY(has_value());
    return std::get<0>(state_);
  }

  [[nodiscard]] T&& value() && {
    VERIFY(has_value());
    return std::get<0>(std::move(state_));
  }

  [[nodiscard]] const Error& error() const& {
    VERIFY(!has_value());
    return std::get<1>(state_);
  }

  [[nodiscard]] Error&& error() && {
    VERIFY(!has_value());
    return std::get<1>(std::move(state_));
  }

  T* operator->() { return &value(); }

  const T* operator->() const { return &value(); }

  T& operator*() & { return value(); }

  const T& operator*() const& { return value(); }

  T&& operator*() && { return std::move(*this).value(); }

 private:
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  using value_type = void;

  Result() = default;

  Result(Error error) : error_(std::move(error)) {}

  [[nodiscard]] bool has_value() const { return !error_.has_value(); }

  explicit operator bool() const { return has_value(); }

  void value() const { VERIFY(has_value()); }

  [[nodiscard]] const Error& error() const& {
    VERIFY(!has_value());
    return *error_;
  }

  [[nodiscard]] Error&& error() && {
    VERIFY(!has_value());
    return *std::move(error_);
  }

 private:
  std::optional<Error> error_;
};

}  // namespace imagefs_guard

/// Value of `expr`, or return its error from the enclosing function. Do not nest.
#define TRY(expr)                           \
  __extension__({                           \
    auto&& try_result = (expr);             \
    if (!try_result) [[unlikely]] {         \
      return std::move(try_result).error(); \
    }                                       \
    std::move(try_result).value();          \
  })
