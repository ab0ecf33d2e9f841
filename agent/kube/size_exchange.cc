#include "agent/kube/size_exchange.h"

#include <utility>

#include "agent/wire/percent_encoding.h"
#include "agent/wire/size_json.h"

namespace imagefs_guard {

namespace {

/// Of a read that failed.
constexpr Duration kReadAgain = std::chrono::minutes(1);
/// Who is refused is not let in by asking again soon.
constexpr Duration kRefusedPause = std::chrono::minutes(30);

std::vector<SizeRecord> all_of(SizeShards shards) {
  std::vector<SizeRecord> records;
  for (const std::vector<SizeRecord>& shard : shards) {
    records.insert(records.end(), shard.begin(), shard.end());
  }
  return records;
}

}  // namespace

SizeExchange::SizeExchange(KubeApi& api, SizeExchangeOptions options, SizeExchangeHandlers handlers)
    : api_(api),
      options_(std::move(options)),
      handlers_(std::move(handlers)),
      own_name_(node_sizes_name(options_.node_name)),
      read_timer_(api.loop().make_timer("sizes read", [this] { on_read_timer(); })),
      write_timer_(api.loop().make_timer("sizes write", [this] { write(); })) {}

void SizeExchange::start() {
  if (!own_name_.empty()) {
    read_own();
  } else {
    has_asked_ = true;
  }
}

std::string SizeExchange::path_of(const std::string& name) const {
  return "/api/v1/namespaces/" + percent_encode(options_.namespace_name) + "/configmaps/" +
         percent_encode(name);
}

/// Nodes that start together must not ask together for ever.
Duration SizeExchange::jittered(Duration duration) {
  return duration + Duration(static_cast<std::int64_t>(
                        api_.random_below(static_cast<std::uint64_t>(duration.count() / 4 + 1))));
}

void SizeExchange::on_read_timer() {
  if (own_read_) {
    read_merged(merged_version_.empty());
  } else {
    read_own();
  }
}

void SizeExchange::read_own() {
  KubeRequest request;
  request.verb = KubeVerb::Get;
  request.resource = "configmaps";
  request.path = path_of(own_name_);
  read_call_ = api_.start(std::move(request),
                          [this](Result<std::string> reply) { on_own(std::move(reply)); });
}

void SizeExchange::on_own(Result<std::string> reply) {
  if (!reply && reply.error().kind != ErrorKind::NotFound) {
    has_asked_ = true;
    tell(reply.error());
    const bool refused = reply.error().kind == ErrorKind::PermissionDenied;
    read_timer_->arm(jittered(refused ? kRefusedPause : kReadAgain));
    return;
  }
  own_read_ = true;
  exists_ = reply.has_value();
  if (reply) {
    // A map that can't be read is written anew.
    if (const Result<SizeMap> map = parse_size_map(*reply)) {
      written_ = map->node;
      handlers_.own(map->node);
    }
  }
  write_when_due();
  read_merged(true);
}

/// The object may have 360 kB and seldom changes: its version first.
void SizeExchange::read_merged(bool whole) {
  KubeRequest request;
  request.verb = KubeVerb::Get;
  request.resource = "configmaps";
  request.path = path_of(kMergedSizesName);
  request.metadata_only = !whole;
  read_call_ = api_.start(std::move(request), [this, whole](Result<std::string> reply) {
    on_merged(whole, std::move(reply));
  });
}

void SizeExchange::on_merged(bool whole, Result<std::string> reply) {
  read_timer_->arm(jittered(options_.read_every));
  has_asked_ = true;
  if (!reply) {
    if (reply.error().kind == ErrorKind::NotFound) {
      merged_version_.clear();  // nobody has learned anything, or there is no coordinator
      return;
    }
    tell(reply.error());
    if (reply.error().kind == ErrorKind::PermissionDenied) {
      read_timer_->arm(jittered(kRefusedPause));
    }
    return;
  }
  Result<SizeMap> map = parse_size_map(*reply);
  if (!map) {
    tell(map.error());
    return;
  }
  trouble_.clear();
  if (whole) {
    merged_version_ = map->resource_version;
    handlers_.merged(all_of(std::move(map->shards)));
  } else if (map->resource_version != merged_version_) {
    read_merged(true);
  }
}

void SizeExchange::publish(std::vector<SizeRecord> records, const std::string& node_uid) {
  wanted_ = std::move(records);
  node_uid_ = node_uid;
  write_when_due();
}

void SizeExchange::write_when_due() {
  if (!own_read_ || node_uid_.empty() || write_call_ != nullptr || wanted_.empty() ||
      wanted_ == written_) {
    return;
  }
  const MonotonicTime now = api_.loop().now();
  write_timer_->arm(now >= not_before_ ? Duration::zero() : not_before_ - now);
}

void SizeExchange::write() {
  being_written_ = wanted_;
  not_before_ = api_.loop().now() + options_.write_every;
  const std::string body = node_sizes_body({.namespace_name = options_.namespace_name,
                                            .node = options_.node_name,
                                            .node_uid = node_uid_,
                                            .records = being_written_});
  KubeRequest request;
  if (exists_) {
    request.verb = KubeVerb::MergePatch;
    request.resource = "configmaps";
    request.path = path_of(own_name_);
  } else {
    request.verb = KubeVerb::Create;
    request.resource = "configmaps";
    request.path = "/api/v1/namespaces/" + percent_encode(options_.namespace_name) + "/configmaps";
  }
  request.body = body;
  write_call_ =
      api_.start(std::move(request), [this, created = !exists_](Result<std::string> reply) {
        on_written(created, std::move(reply));
      });
}

void SizeExchange::on_written(bool created, Result<std::string> reply) {
  write_call_.reset();
  if (reply) {
    exists_ = true;
    trouble_.clear();
    written_ = std::move(being_written_);
    write_when_due();
    return;
  }
  const ErrorKind kind = reply.error().kind;
  // Somebody made it, or took it away, meanwhile: the other way next time.
  if ((created && kind == ErrorKind::AlreadyExists) || (!created && kind == ErrorKind::NotFound)) {
    exists_ = created;
  } else {
    tell(reply.error());
  }
  if (kind == ErrorKind::PermissionDenied) {
    not_before_ = api_.loop().now() + kRefusedPause;
  }
  write_when_due();
}

void SizeExchange::tell(const Error& error) {
  if (trouble_ != error.message) {
    trouble_ = error.message;
    handlers_.trouble(error);
  }
}

}  // namespace imagefs_guard
