#include "agent/core/size_record.h"

#include <algorithm>

namespace imagefs_guard {

bool merge_size_records(std::vector<SizeRecord>& known,
                        const std::vector<SizeRecord>& news,
                        std::size_t limit) {
  std::vector<SizeRecord> fresh;
  bool changed = false;
  const auto same = [](const SizeRecord& a, const SizeRecord& b) {
    return a.diff_id == b.diff_id && a.measured_on == b.measured_on;
  };
  for (const SizeRecord& record : news) {
    const auto is_it = [&](const SizeRecord& other) { return same(record, other); };
    const auto found = std::ranges::find_if(known, is_it);
    if (found != known.end()) {
      if (record.bytes > found->bytes) {
        *found = record;
        changed = true;
      }
    } else if (std::ranges::none_of(fresh, is_it)) {
      fresh.push_back(record);
    }
  }
  // News that would fall off at once is none: the same records would be written for ever.
  const std::size_t room = limit > known.size() ? limit - known.size() : 0;
  const std::size_t most = std::max(room, limit / 2);
  fresh.resize(std::min(fresh.size(), most));
  if (fresh.empty()) {
    return changed;
  }
  known.insert(known.begin(), fresh.begin(), fresh.end());
  known.resize(std::min(known.size(), limit));
  return true;
}

}  // namespace imagefs_guard
