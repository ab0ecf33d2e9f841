#include <cstdint>
#include <optional>
#include <vector>

#include "tests/fuzz/mutate.h"

namespace imagefs_guard::fuzz {

namespace {

constexpr int kNestingLimit = 8;

/// One field in protobuf's wire format; only what its wire type has is of use.
struct Field {
  std::uint64_t number = 1;
  unsigned wire_type = 0;
  std::uint64_t integer = 0;  // varint
  std::string bytes;          // length-delimited, and fixed 32 and 64 as they are
};

std::optional<std::uint64_t> take_varint(std::string_view& input) {
  std::uint64_t value = 0;
  for (unsigned shift = 0; shift < 64 && !input.empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(input.front());
    input.remove_prefix(1);
    value |= static_cast<std::uint64_t>(byte & 0x7FU) << shift;
    if ((byte & 0x80U) == 0) {
      return value;
    }
  }
  return std::nullopt;
}

void put_varint(std::uint64_t value, std::string& out) {
  while (value >= 0x80) {
    out.push_back(static_cast<char>(0x80U | (value & 0x7FU)));
    value >>= 7U;
  }
  out.push_back(static_cast<char>(value));
}

std::optional<std::vector<Field>> fields_of(std::string_view message) {
  std::vector<Field> fields;
  while (!message.empty()) {
    const std::optional<std::uint64_t> key = take_varint(message);
    if (!key || (*key >> 3U) == 0) {
      return std::nullopt;
    }
    Field field{.number = *key >> 3U, .wire_type = static_cast<unsigned>(*key & 7U), .bytes = {}};
    std::uint64_t length = field.wire_type == 1 ? 8 : field.wire_type == 5 ? 4 : 0;
    if (field.wire_type == 0 || field.wire_type == 2) {
      const std::optional<std::uint64_t> value = take_varint(message);
      if (!value) {
        return std::nullopt;
      }
      field.integer = field.wire_type == 0 ? *value : 0;
      length = field.wire_type == 2 ? *value : 0;
    } else if (length == 0) {
      return std::nullopt;
    }
    if (length > message.size()) {
      return std::nullopt;
    }
    field.bytes = std::string(message.substr(0, static_cast<std::size_t>(length)));
    message.remove_prefix(static_cast<std::size_t>(length));
    fields.push_back(std::move(field));
  }
  return fields;
}

std::string join(const std::vector<Field>& fields) {
  std::string message;
  for (const Field& field : fields) {
    put_varint(field.number << 3U | field.wire_type, message);
    if (field.wire_type == 0) {
      put_varint(field.integer, message);
    } else if (field.wire_type == 2) {
      put_varint(field.bytes.size(), message);
    }
    message += field.bytes;
  }
  return message;
}

std::uint64_t interesting_integer(std::mt19937_64& random) {
  switch (below(random, 4)) {
    case 0:
      return ~std::uint64_t{0} - below(random, 3);  // negative as int64
    case 1:
      return std::uint64_t{1} << below(random, 64);
    case 2:
      return (std::uint64_t{1} << 63U) - 1 - below(random, 5000);
    default:
      return below(random, 300);
  }
}

std::string mutate_nested(std::string_view message,
                          const Mutation& mutation,
                          std::mt19937_64& random,
                          int depth) {
  std::optional<std::vector<Field>> fields = fields_of(message);
  if (!fields || fields->empty()) {
    return mutation.plain(message, random);
  }
  const std::size_t at = below(random, fields->size());
  Field& field = (*fields)[at];
  const auto place = fields->begin() + static_cast<std::ptrdiff_t>(at);
  switch (below(random, 10)) {
    case 0:
      fields->erase(place);
      break;
    case 1: {
      const Field copy = field;
      fields->insert(place, below(random, 6) == 0 ? 1 + below(random, 64) : 1, copy);
      break;
    }
    case 2:
      field.number = 1 + below(random, 20);
      break;
    case 3:
      field = {.number = field.number, .wire_type = 0, .integer = random(), .bytes = {}};
      break;
    case 4:
      std::swap(field, (*fields)[below(random, fields->size())]);
      break;
    default:
      if (field.wire_type == 0) {
        field.integer = interesting_integer(random);
      } else if (field.wire_type == 2 && depth < kNestingLimit) {
        field.bytes = mutate_nested(field.bytes, mutation, random, depth + 1);
      } else if (field.wire_type == 2) {
        field.bytes = mutation.plain(field.bytes, random);
      }
      break;
  }
  return join(*fields);
}

}  // namespace

std::string mutate_protobuf(std::string_view message,
                            const Mutation& mutation,
                            std::mt19937_64& random) {
  return mutate_nested(message, mutation, random, 0);
}

}  // namespace imagefs_guard::fuzz
