#include "agent/commands/coordinator_sizes.h"

#include <algorithm>
#include <utility>

#include "agent/wire/percent_encoding.h"

namespace imagefs_guard {

namespace {

/// Nodes' maps read in a round of a minute: 5,000 nodes that all have news are through in an hour
/// and a half, at less than one request a second.
constexpr std::size_t kReadsPerRound = 50;

}  // namespace

CoordinatorSizes::CoordinatorSizes(KubeApi& api, std::string namespace_name)
    : api_(api),
      namespace_name_(std::move(namespace_name)),
      path_("/api/v1/namespaces/" + percent_encode(namespace_name_) + "/configmaps"),
      lister_(api) {}

void CoordinatorSizes::run(Done done) {
  if (done_) {
    done(std::nullopt);
    return;
  }
  done_ = std::move(done);
  if (merged_read_) {
    list_nodes();
  } else {
    read_merged();
  }
}

void CoordinatorSizes::forget() {
  merged_read_ = false;
  shards_ = {};
  changed_ = 0;
  seen_.clear();
}

void CoordinatorSizes::read_merged() {
  KubeRequest request;
  request.verb = KubeVerb::Get;
  request.resource = "configmaps";
  request.path = path_ + "/" + kMergedSizesName;
  call_ = api_.start(std::move(request), [this](Result<std::string> reply) {
    if (!reply && reply.error().kind != ErrorKind::NotFound) {
      finish(std::move(reply).error());
      return;
    }
    if (reply) {
      if (Result<SizeMap> map = parse_size_map(*reply)) {
        shards_ = std::move(map->shards);
      }
    }
    merged_read_ = true;
    list_nodes();
  });
}

void CoordinatorSizes::list_nodes() {
  auto versions = std::make_shared<std::vector<NamedVersion>>();
  lister_.start(
      {.resource = "configmaps",
       .path = path_,
       .label_selector = std::string(kSizesLabel) + "=node",
       .metadata_only = true},
      [versions](std::string_view json) { return parse_size_versions(json, *versions); },
      [this, versions](std::optional<Error> error) {
        if (error.has_value()) {
          finish(std::move(error));
          return;
        }
        std::map<std::string, std::string> still_there;
        to_read_.clear();
        for (NamedVersion& version : *versions) {
          const auto seen = seen_.find(version.name);
          if (seen != seen_.end()) {
            still_there.insert(*seen);
          }
          if ((seen == seen_.end() || seen->second != version.resource_version) &&
              to_read_.size() < kReadsPerRound) {
            to_read_.push_back(std::move(version));
          }
        }
        seen_ = std::move(still_there);
        read_next();
      });
}

void CoordinatorSizes::read_next() {
  if (to_read_.empty()) {
    write();
    return;
  }
  NamedVersion version = std::move(to_read_.front());
  to_read_.pop_front();
  KubeRequest request;
  request.verb = KubeVerb::Get;
  request.resource = "configmaps";
  request.path = path_ + "/" + percent_encode(version.name);
  call_ = api_.start(std::move(request), [this, version](Result<std::string> reply) {
    if (reply) {
      if (const Result<SizeMap> map = parse_size_map(*reply)) {
        take_node(version, *map);
      } else {
        seen_[version.name] = version.resource_version;  // no better for being read again
      }
    } else if (reply.error().kind != ErrorKind::NotFound) {
      to_read_.clear();  // the server has trouble; keep what there is
      finish(std::move(reply).error());
      return;
    }
    read_next();
  });
}

void CoordinatorSizes::take_node(const NamedVersion& version, const SizeMap& map) {
  SizeShards news;
  for (const SizeRecord& record : map.node) {
    news[size_shard_of(record.diff_id)].push_back(record);
  }
  for (std::size_t i = 0; i < kSizeShards; ++i) {
    if (merge_size_records(shards_[i], news[i], kShardSizesMaximum)) {
      changed_ |= 1U << i;
    }
  }
  // Of the list, not of this reply: what came in between is read once more.
  seen_[version.name] = version.resource_version;
}

void CoordinatorSizes::write() {
  if (changed_ == 0) {
    finish(std::nullopt);
    return;
  }
  KubeRequest request;
  request.verb = KubeVerb::MergePatch;
  request.resource = "configmaps";
  request.path = path_ + "/" + kMergedSizesName;
  request.body = merged_sizes_body(namespace_name_, shards_, changed_);
  call_ = api_.start(std::move(request), [this](Result<std::string> reply) {
    if (!reply && reply.error().kind == ErrorKind::NotFound) {
      create();
    } else {
      on_written(std::move(reply));
    }
  });
}

void CoordinatorSizes::create() {
  constexpr unsigned kAll = (1U << kSizeShards) - 1;
  KubeRequest request;
  request.verb = KubeVerb::Create;
  request.resource = "configmaps";
  request.path = path_;
  request.body = merged_sizes_body(namespace_name_, shards_, kAll);
  call_ = api_.start(std::move(request),
                     [this](Result<std::string> reply) { on_written(std::move(reply)); });
}

void CoordinatorSizes::on_written(Result<std::string> reply) {
  if (!reply) {
    finish(std::move(reply).error());
    return;
  }
  changed_ = 0;
  finish(std::nullopt);
}

void CoordinatorSizes::finish(std::optional<Error> error) {
  const Done done = std::exchange(done_, nullptr);
  done(std::move(error));
}

}  // namespace imagefs_guard
