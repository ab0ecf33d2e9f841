#include "agent/commands/policy_file.h"

#include <sys/stat.h>

#include "agent/io/file.h"
#include "agent/wire/policy.h"

namespace imagefs_guard {

PolicyFile::Identity PolicyFile::look() const {
  struct stat status {};

  if (stat(path_.c_str(), &status) != 0) {
    return {};
  }
  return {static_cast<std::int64_t>(status.st_dev),
          static_cast<std::int64_t>(status.st_ino),
          status.st_size,
          status.st_mtim.tv_sec,
          status.st_mtim.tv_nsec};
}

Result<Policy> PolicyFile::load() {
  if (path_.empty()) {
    return default_policy();
  }
  // Before it is read: a change in between is seen by the next look.
  seen_ = look();
  auto text = read_file(path_, kPolicyBytesLimit);
  if (!text) {
    return std::move(text).error();
  }
  auto policy = parse_policy(*text);
  if (!policy) {
    return with_context(std::move(policy).error(), path_);
  }
  return policy;
}

std::optional<Result<Policy>> PolicyFile::poll() {
  if (path_.empty() || look() == seen_) {
    return std::nullopt;
  }
  return load();
}

std::optional<Error> why_not_now(const Policy& running, const Policy& next) {
  if (running.taint_key != next.taint_key) {
    return Error{ErrorKind::FailedPrecondition,
                 "taintKey can't change while the agent runs, since a taint with the old key "
                 "would stay: restart the agents"};
  }
  return std::nullopt;
}

}  // namespace imagefs_guard
