#include "agent/status/pages.h"

#include "agent/status/metrics.h"
#include "agent/status/readiness.h"
#include "agent/status/status_json.h"
#include "agent/status/status_page.h"

namespace imagefs_guard {

namespace {

constexpr int kUnavailable = 503;
constexpr int kNotFound = 404;
/// A probe's error may quote a server's answer.
constexpr std::size_t kReasonBytesLimit = 300;

/// On one line, printable ASCII and UTF-8 alone.
std::string one_line(const std::string& text) {
  std::string line = text.substr(0, kReasonBytesLimit);
  for (char& c : line) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      c = ' ';
    }
  }
  return line;
}

PageReply livez(const StatusView& view) {
  return is_alive(view) ? PageReply{.body = "ok\n"}
                        : PageReply{.status = kUnavailable, .body = "no decision for too long\n"};
}

PageReply readyz(const StatusView& view, bool verbose) {
  const std::vector<ReadyPart> parts = readiness_parts(view);
  const bool ready = is_ready(parts);
  if (ready && !verbose) {
    return {.body = "ok\n"};
  }
  std::string body;
  for (const ReadyPart& part : parts) {
    body += (part.ok ? "[+]" : "[-]") + part.name;
    if (part.ok) {
      body += " ok\n";
    } else {
      body += (part.required ? ": " : " (does not count): ") + one_line(part.reason) + "\n";
    }
  }
  body += ready ? "ready\n" : "not ready\n";
  return {.status = ready ? 200 : kUnavailable, .body = std::move(body)};
}

PageReply metrics(const StatusView& view, const std::string& accept) {
  const MetricsFormat format = choose_metrics_format(accept);
  return {.content_type = content_type_of(format),
          .body = format_metrics(collect_metrics(view), format)};
}

}  // namespace

PageReply answer_page(const PageRequest& request, const StatusView& view) {
  if (request.path == "/livez" || request.path == "/healthz") {
    return livez(view);
  }
  if (request.path == "/readyz") {
    return readyz(view, request.has_query("verbose"));
  }
  if (request.path == "/metrics") {
    return metrics(view, request.accept);
  }
  if (request.path == "/status.json") {
    const bool now = request.has_query("now");
    return {.content_type = "application/json",
            .body = status_json(view, now ? StatusDetail::Now : StatusDetail::WithHistory)};
  }
  if (request.path == "/") {
    return {.content_type = "text/html; charset=utf-8", .body = status_page(view)};
  }
  return {.status = kNotFound, .body = "there is no such page\n"};
}

}  // namespace imagefs_guard
