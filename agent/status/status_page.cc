// untested: pages_test.cc has its cases.
#include "agent/status/status_page.h"

#include "agent/status/status_json.h"

namespace imagefs_guard {

namespace {

constexpr std::string_view kMarker = "@STATUS@";

}  // namespace

std::string json_for_html(std::string_view json) {
  std::string text;
  text.reserve(json.size() + 64);
  for (const char c : json) {
    switch (c) {
      case '<':
        text += "\\u003c";
        break;
      case '>':
        text += "\\u003e";
        break;
      case '&':
        text += "\\u0026";
        break;
      default:
        text += c;
    }
  }
  return text;
}

std::string status_page(const StatusView& view) {
  const std::string_view page = status_page_template();
  const std::size_t at = page.find(kMarker);
  std::string text(page.substr(0, at));
  text += json_for_html(status_json(view, StatusDetail::WithHistory));
  text += page.substr(at + kMarker.size());
  return text;
}

}  // namespace imagefs_guard
