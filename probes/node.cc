#include "probes/node.h"

#include <utility>

#include "agent/wire/kube_json.h"
#include "probes/kube_staleness.h"

namespace imagefs_guard {
namespace {

/// Another resource version alone is no news: heartbeats change it every few minutes.
bool same_but_version(const std::optional<Node>& node, const std::optional<Node>& other) {
  if (!node.has_value() || !other.has_value()) {
    return node.has_value() == other.has_value();
  }
  Node copy = *other;
  copy.resource_version = node->resource_version;
  return copy == *node;
}

}  // namespace

NodeProbe::NodeProbe(KubeApi& api, std::string node_name)
    : loop_(api.loop()),
      node_name_(std::move(node_name)),
      watch_(api, WatchSpec{"nodes", "/api/v1/nodes", "metadata.name=" + node_name_}, *this) {}

void NodeProbe::start(std::function<void()> changed) {
  changed_ = std::move(changed);
  watch_.start();
}

void NodeProbe::refresh(std::function<void()> done) {
  done();
}

void NodeProbe::contribute(NodeSnapshot& snapshot) {
  std::optional<std::string> reason = why_absent(watch_, loop_.now());
  if (!reason.has_value() && !node_.has_value()) {
    reason = "the API server has no node " + node_name_;
  }
  if (reason.has_value()) {
    snapshot.node.reset();
    snapshot.probe_errors[name()] = *std::move(reason);
    return;
  }
  snapshot.probe_errors.erase(name());
  if (!published_ || !snapshot.node.has_value()) {
    snapshot.node = node_;
    published_ = true;
  }
}

void NodeProbe::list_begins() {
  listed_.reset();
}

Result<ListMetadata> NodeProbe::list_page(std::string_view body) {
  NodeList page = TRY(parse_node_list(body));
  for (Node& node : page.nodes) {
    if (node.name == node_name_) {
      listed_ = std::move(node);
    }
  }
  return std::move(page.metadata);
}

void NodeProbe::list_ends() {
  replace(std::exchange(listed_, std::nullopt));
}

Result<WatchLine> NodeProbe::watch_line(std::string_view line) {
  NodeWatchEvent event = TRY(parse_node_watch_event(line));
  switch (event.type) {
    case WatchEventType::Added:
    case WatchEventType::Modified:
      if (event.node.name == node_name_) {
        replace(std::move(event.node));
      }
      break;
    case WatchEventType::Deleted:
      if (node_.has_value() && node_->uid == event.node.uid) {
        replace(std::nullopt);
      }
      break;
    case WatchEventType::Bookmark:
    case WatchEventType::Error:
      break;
  }
  return WatchLine{event.type, std::move(event.resource_version), std::move(event.status)};
}

void NodeProbe::replace(std::optional<Node> node) {
  const bool news = !same_but_version(node_, node);
  node_ = std::move(node);
  published_ = false;
  if (news && changed_ != nullptr) {
    changed_();
  }
}

}  // namespace imagefs_guard
