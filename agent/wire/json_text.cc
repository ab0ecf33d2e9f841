// untested: kube_patch_test.cc and the tests of the other writers compare what it gives.
#include "agent/wire/json_text.h"

#include <nlohmann/json.hpp>

namespace imagefs_guard {

std::string compact_text(const nlohmann::json& value) {
  return value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

nlohmann::json test_operation(const std::string& path, const nlohmann::json& value) {
  return {{"op", "test"}, {"path", path}, {"value", value}};
}

}  // namespace imagefs_guard
