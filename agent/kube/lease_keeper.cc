#include "agent/kube/lease_keeper.h"

#include <utility>

#include "agent/wire/lease_json.h"

namespace imagefs_guard {

namespace {

/// A rival that was seen counts for so many renewals.
constexpr int kRivalRenewals = 3;

std::int64_t whole_seconds(Duration duration) {
  return std::chrono::duration_cast<std::chrono::seconds>(duration).count();
}

KubeRequest lease_request(KubeVerb verb, std::string path, std::string body) {
  KubeRequest request;
  request.verb = verb;
  request.resource = "leases";
  request.path = std::move(path);
  request.body = std::move(body);
  return request;
}

}  // namespace

LeaseKeeper::LeaseKeeper(KubeApi& api, LeaseOptions options, std::function<void()> changed)
    : api_(api),
      options_(std::move(options)),
      changed_(std::move(changed)),
      timer_(api.loop().make_timer("lease", [this] { renew(); })),
      path_("/apis/coordination.k8s.io/v1/namespaces/" + percent_encode(options_.namespace_name) +
            "/leases") {}

void LeaseKeeper::start() {
  renew();
}

bool LeaseKeeper::holding() const {
  return held_until_.has_value() && api_.loop().now() < *held_until_;
}

std::optional<std::string> LeaseKeeper::rival() const {
  if (rival_.empty() || api_.loop().now() - rival_at_ > kRivalRenewals * options_.renew_every) {
    return std::nullopt;
  }
  return rival_;
}

void LeaseKeeper::renew() {
  if (resource_version_.empty()) {
    read();
  } else {
    write(options_.identity);
  }
}

void LeaseKeeper::read() {
  call_ = api_.start(lease_request(KubeVerb::Get, path_ + "/" + percent_encode(options_.name), {}),
                     [this](Result<std::string> reply) { on_read(std::move(reply)); });
}

void LeaseKeeper::on_read(Result<std::string> reply) {
  if (!reply) {
    if (reply.error().kind == ErrorKind::NotFound) {
      acquire_time_.clear();
      transitions_ = 0;
      write(options_.identity);
      return;
    }
    retry(reply.error().message);
    return;
  }
  const Result<Lease> lease = parse_lease(*reply);
  if (!lease) {
    retry(lease.error().message);
    return;
  }
  const MonotonicTime now = api_.loop().now();
  if (lease->holder != seen_holder_ || lease->renew_time != seen_renewal_) {
    seen_holder_ = lease->holder;
    seen_renewal_ = lease->renew_time;
    seen_at_ = now;
  }
  const bool others = !lease->holder.empty() && lease->holder != options_.identity;
  if (others && has_held_) {
    rival_ = lease->holder;  // it was ours, and somebody has taken it from us
    rival_at_ = now;
  } else if (!others) {
    rival_.clear();  // given back: a roll-out, in which two agents overlap
  }
  if (others && options_.elects && now - seen_at_ < options_.duration) {
    held_until_.reset();
    timer_->arm(options_.retry_every);
    changed_();
    return;
  }
  resource_version_ = lease->resource_version;
  acquire_time_ = others || lease->holder.empty() ? std::string() : lease->acquire_time;
  transitions_ = lease->transitions + (others ? 1 : 0);
  write(options_.identity);
}

void LeaseKeeper::write(const std::string& holder) {
  const bool creates = resource_version_.empty();
  std::string body = lease_body({.namespace_name = options_.namespace_name,
                                 .name = options_.name,
                                 .resource_version = resource_version_,
                                 .holder = holder,
                                 .acquire_time = acquire_time_,
                                 .transitions = transitions_,
                                 .duration_seconds = whole_seconds(options_.duration),
                                 .now = api_.loop().wall_now()});
  const MonotonicTime sent_at = api_.loop().now();
  std::string path = creates ? path_ : path_ + "/" + percent_encode(options_.name);
  call_ = api_.start(
      lease_request(
          creates ? KubeVerb::Create : KubeVerb::Update, std::move(path), std::move(body)),
      [this, sent_at](Result<std::string> reply) { on_written(sent_at, std::move(reply)); });
}

void LeaseKeeper::on_written(MonotonicTime sent_at, Result<std::string> reply) {
  resource_version_.clear();
  if (!reply) {
    retry(reply.error().message);
    return;
  }
  const Result<Lease> lease = parse_lease(*reply);
  if (!lease) {
    retry(lease.error().message);
    return;
  }
  resource_version_ = lease->resource_version;
  acquire_time_ = lease->acquire_time;
  transitions_ = lease->transitions;
  held_until_ = sent_at + options_.duration;
  has_held_ = true;
  error_.clear();
  timer_->arm(options_.renew_every);
  changed_();
}

void LeaseKeeper::retry(const std::string& error) {
  error_ = error;
  timer_->arm(options_.retry_every);
  changed_();
}

void LeaseKeeper::release(std::function<void()> done) {
  timer_->disarm();
  const bool ours = holding() && !resource_version_.empty();
  held_until_.reset();
  call_.reset();
  if (!ours) {
    done();
    return;
  }
  std::string body = lease_body({.namespace_name = options_.namespace_name,
                                 .name = options_.name,
                                 .resource_version = std::exchange(resource_version_, {}),
                                 .holder = {},
                                 .acquire_time = acquire_time_,
                                 .transitions = transitions_,
                                 .duration_seconds = 1,
                                 .now = api_.loop().wall_now()});
  call_ = api_.start(
      lease_request(KubeVerb::Update, path_ + "/" + percent_encode(options_.name), std::move(body)),
      [done = std::move(done)](const Result<std::string>&) { done(); });
}

}  // namespace imagefs_guard
