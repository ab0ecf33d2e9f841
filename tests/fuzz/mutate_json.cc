#include <array>
#include <cstdint>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <vector>

#include "tests/fuzz/mutate.h"

namespace imagefs_guard::fuzz {

namespace {

using Json = nlohmann::json;

constexpr int kDepthLimit = 100;

/// Every value of the document, parents first; bounded by the size of the input.
void collect(Json& value, std::vector<Json*>& all, int depth) {
  all.push_back(&value);
  if (depth < kDepthLimit && value.is_structured()) {
    for (Json& child : value) {
      collect(child, all, depth + 1);
    }
  }
}

Json interesting(std::mt19937_64& random) {
  constexpr std::int64_t kMaximum = std::numeric_limits<std::int64_t>::max();
  switch (below(random, 16)) {
    case 0:
      return nullptr;
    case 1:
      return true;
    case 2:
      return Json::array();
    case 3:
      return Json::object();
    case 4:
      return "";
    case 5:
      return kMaximum;
    case 6:
      return std::numeric_limits<std::int64_t>::min();
    case 7:
      return std::numeric_limits<std::uint64_t>::max();
    case 8:
      return kMaximum - static_cast<std::int64_t>(below(random, 8192));
    case 9:
      return -1;
    case 10:
      return 1e308;
    case 11:
      return static_cast<std::int64_t>(std::uint64_t{1} << below(random, 63));
    case 12:
      return std::to_string(random());
    case 13:
      return "sha256:" + std::string(64, "0123456789abcdef"[below(random, 16)]);
    case 14:
      return Json::array({nullptr, 0, ""});
    default:
      return static_cast<std::int64_t>(below(random, 300)) - 20;
  }
}

void change_object(Json& value, const std::vector<Json*>& all, std::mt19937_64& random) {
  const auto it =
      std::next(value.begin(), static_cast<std::ptrdiff_t>(below(random, value.size())));
  if (below(random, 2) == 0) {
    value.erase(it.key());
    return;
  }
  // A member that another object has, with that one's value: right names in wrong places.
  const Json& other = *all[below(random, all.size())];
  if (other.is_object() && !other.empty()) {
    const auto from =
        std::next(other.begin(), static_cast<std::ptrdiff_t>(below(random, other.size())));
    const std::string key = from.key();
    Json copy = from.value();
    value[key] = std::move(copy);
  }
}

void change_array(Json& value, std::mt19937_64& random) {
  const std::size_t at = below(random, value.size());
  Json copy = value[at];
  if (below(random, 3) == 0) {
    value.erase(at);
    return;
  }
  const std::size_t times = below(random, 8) == 0 ? 1 + below(random, 100) : 1;
  for (std::size_t i = 0; i < times; ++i) {
    value.push_back(copy);
  }
}

void change(Json& value,
            const std::vector<Json*>& all,
            const Mutation& mutation,
            std::mt19937_64& random) {
  const std::size_t way = below(random, 8);
  if (way == 0) {
    value = interesting(random);
  } else if (way == 1) {
    Json copy = *all[below(random, all.size())];
    value = std::move(copy);
  } else if (value.is_object() && !value.empty()) {
    change_object(value, all, random);
  } else if (value.is_array() && !value.empty()) {
    change_array(value, random);
  } else if (value.is_string()) {
    value = mutation.plain(value.get<std::string>(), random);
  } else {
    value = interesting(random);
  }
}

}  // namespace

std::string mutate_json(std::string_view text, const Mutation& mutation, std::mt19937_64& random) {
  Json document = Json::parse(text, nullptr, false);
  if (document.is_discarded()) {
    return mutation.plain(text, random);
  }
  for (std::size_t times = 1 + below(random, 3); times > 0; --times) {
    std::vector<Json*> all;
    collect(document, all, 0);
    change(*all[below(random, all.size())], all, mutation, random);
  }
  return document.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace imagefs_guard::fuzz
