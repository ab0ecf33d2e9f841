#include "probes/filesystem.h"

#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

namespace imagefs_guard {

namespace {

constexpr Duration kInterval = std::chrono::seconds(1);
// Less is noise of logs and writable layers; the next tick sees it in time.
constexpr std::int64_t kNotableBytes = std::int64_t{32} << 20;

FilesystemKind kind_of(long magic) {
  constexpr long kXfsMagic = 0x58465342;  // not in linux/magic.h of all distributions
  if (magic == EXT4_SUPER_MAGIC) {
    return FilesystemKind::Ext4;
  }
  return magic == kXfsMagic ? FilesystemKind::Xfs : FilesystemKind::Other;
}

/// Product, capped: a filesystem may claim anything.
std::int64_t bytes_of(std::uint64_t blocks, std::uint64_t block_bytes) {
  constexpr auto kMost = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  if (block_bytes != 0 && blocks > kMost / block_bytes) {
    return static_cast<std::int64_t>(kMost);
  }
  return static_cast<std::int64_t>(blocks * block_bytes);
}

Error system_error(const std::string& path) {
  const int number = errno;
  ErrorKind kind = ErrorKind::Internal;
  if (number == ENOENT || number == ENOTDIR) {
    kind = ErrorKind::NotFound;
  } else if (number == EACCES) {
    kind = ErrorKind::PermissionDenied;
  }
  return Error{kind, path + ": " + std::strerror(number)};
}

Result<Filesystem> read_filesystem(const std::string& path) {
  struct stat status {};

  struct statvfs space {};

  struct statfs type {};

  if (stat(path.c_str(), &status) != 0 || statvfs(path.c_str(), &space) != 0 ||
      statfs(path.c_str(), &type) != 0) {
    return system_error(path);
  }
  const std::uint64_t block_bytes = space.f_frsize;
  return Filesystem{.device_id = status.st_dev,
                    .path = path,
                    .kind = kind_of(type.f_type),
                    .capacity_bytes = bytes_of(space.f_blocks, block_bytes),
                    .available_bytes = bytes_of(space.f_bavail, block_bytes),
                    .inodes = bytes_of(space.f_files, 1),
                    .inodes_free = bytes_of(space.f_ffree, 1),
                    .block_bytes = bytes_of(block_bytes, 1)};
}

bool is_notable(const std::vector<Filesystem>& before, const std::vector<Filesystem>& after) {
  if (before.size() != after.size()) {
    return true;
  }
  for (std::size_t i = 0; i < before.size(); ++i) {
    const std::int64_t difference = before[i].available_bytes - after[i].available_bytes;
    if (before[i].device_id != after[i].device_id ||
        before[i].capacity_bytes != after[i].capacity_bytes || difference > kNotableBytes ||
        difference < -kNotableBytes) {
      return true;
    }
  }
  return false;
}

}  // namespace

Result<std::vector<Filesystem>> read_filesystems(const FilesystemPaths& paths) {
  Filesystem image = TRY(read_filesystem(paths.image_path));
  Filesystem kubelet = TRY(read_filesystem(paths.kubelet_path));
  image.holds_images = true;
  kubelet.holds_kubelet = true;
  if (image.device_id == kubelet.device_id) {
    image.holds_kubelet = true;
    return std::vector{std::move(image)};
  }
  std::vector<Filesystem> both = {std::move(image), std::move(kubelet)};
  std::ranges::sort(both, {}, &Filesystem::device_id);
  return both;
}

FilesystemProbe::FilesystemProbe(EventLoop& loop, FilesystemPaths paths)
    : loop_(loop), paths_(std::move(paths)), latest_(read_filesystems(paths_)) {}

void FilesystemProbe::start(std::function<void()> changed) {
  changed_ = std::move(changed);
  timer_ = loop_.make_timer("filesystem probe", [this] {
    timer_->arm(kInterval);
    look();
  });
  timer_->arm(kInterval);
}

void FilesystemProbe::look() {
  latest_ = read_filesystems(paths_);
  const bool seen = contributed_.has_value();
  if (latest_.has_value() != seen || (seen && is_notable(*contributed_, *latest_))) {
    // Once for each change, also if no tick comes.
    contributed_ = latest_ ? std::optional(*latest_) : std::nullopt;
    changed_();
  }
}

void FilesystemProbe::refresh(std::function<void()> done) {
  latest_ = read_filesystems(paths_);
  done();
}

void FilesystemProbe::contribute(NodeSnapshot& snapshot) {
  // Microseconds, and a second ago is long ago when something writes.
  latest_ = read_filesystems(paths_);
  if (latest_) {
    snapshot.filesystems = *latest_;
    snapshot.probe_errors.erase(name());
  } else {
    snapshot.filesystems.reset();
    snapshot.probe_errors[name()] = latest_.error().message;
  }
  contributed_ = snapshot.filesystems;
}

}  // namespace imagefs_guard
