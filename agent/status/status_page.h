#pragma once
/// The status page at /: status_page.html, compiled in, with the status of this moment in it, so
/// that the first paint is whole. It asks for /status.json from then on.

#include <string>
#include <string_view>

#include "agent/status/status_view.h"

namespace imagefs_guard {

[[nodiscard]] std::string status_page(const StatusView& view);

/// JSON as it may stand in a script element: nothing in it can end the element.
[[nodiscard]] std::string json_for_html(std::string_view json);

/// status_page.html with its script's hash in place; made by embed_page.py.
[[nodiscard]] std::string_view status_page_template();

}  // namespace imagefs_guard
