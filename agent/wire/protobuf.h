#pragma once
/// Helpers for decoders on protozero, which throws on malformed input: everything that reads a
/// message goes through read_message(). Only for .cc files in this folder.

#include <cstdint>
#include <protozero/pbf_reader.hpp>
#include <protozero/pbf_writer.hpp>
#include <string_view>
#include <utility>

#include "agent/core/result.h"
#include "agent/core/time.h"

namespace imagefs_guard::wire {

/// Calls `field(reader)` for each field. It must read the field once or skip it, and may return an
/// Error. A field of another wire type than expected throws in the getter's place: check with
/// is_bytes() and is_varint() first, and skip() what does not fit.
template <typename Field>
Result<void> read_message(std::string_view message, Field&& field) {
  try {
    protozero::pbf_reader reader(message.data(), message.size());
    while (reader.next()) {
      Result<void> read = field(reader);
      if (!read) {
        return read;
      }
    }
  } catch (const protozero::exception& error) {
    return Error{ErrorKind::InvalidArgument, std::string("malformed message: ") + error.what()};
  }
  return {};
}

[[nodiscard]] inline bool is_bytes(const protozero::pbf_reader& reader) {
  return reader.wire_type() == protozero::pbf_wire_type::length_delimited;
}

[[nodiscard]] inline bool is_varint(const protozero::pbf_reader& reader) {
  return reader.wire_type() == protozero::pbf_wire_type::varint;
}

/// A bytes, string or message field, or empty if the field has another wire type.
[[nodiscard]] inline std::string_view take_bytes(protozero::pbf_reader& reader) {
  if (!is_bytes(reader)) {
    reader.skip();
    return {};
  }
  const protozero::data_view view = reader.get_view();
  return {view.data(), view.size()};
}

/// An int64, uint64, bool or enum field, or 0 if the field has another wire type.
[[nodiscard]] inline std::int64_t take_integer(protozero::pbf_reader& reader) {
  if (!is_varint(reader)) {
    reader.skip();
    return 0;
  }
  return reader.get_int64();
}

/// The nested message with that number, or empty.
[[nodiscard]] inline Result<std::string_view> nested(std::string_view message,
                                                     std::uint32_t number) {
  std::string_view inner;
  TRY(read_message(message, [&](protozero::pbf_reader& reader) -> Result<void> {
    if (reader.tag() == number) {
      inner = take_bytes(reader);
    } else {
      reader.skip();
    }
    return {};
  }));
  return inner;
}

/// google.protobuf.Timestamp; out of range = the epoch.
[[nodiscard]] Result<WallTime> decode_timestamp(std::string_view message);

}  // namespace imagefs_guard::wire
