#include "agent/actions/reclaim_image.h"

#include <utility>

namespace imagefs_guard {

ReclaimImageRunner::ReclaimImageRunner(Containerd& containerd, Available available, Removed removed)
    : containerd_(containerd), available_(std::move(available)), removed_(std::move(removed)) {}

void ReclaimImageRunner::start(const ReclaimImage& action, ActionDone done) {
  const std::uint64_t id = next_id_++;
  const std::int64_t before = available_();
  calls_[id] = containerd_.remove_image(
      to_string(action.image_id),
      [this, id, action, before, done = std::move(done)](Result<void> result) {
        const auto finished = calls_.extract(id);
        if (!result) {
          done(with_context(std::move(result).error(), "remove " + action.image));
          return;
        }
        const std::int64_t after = available_();
        if (before >= 0 && after >= 0) {
          removed_(action, after - before);
        }
        done(std::nullopt);
      });
}

}  // namespace imagefs_guard
