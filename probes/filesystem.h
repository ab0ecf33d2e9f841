#pragma once
/// The filesystems that matter: the runtime's and the kubelet's, one entry per device. Source:
/// stat, statvfs and statfs. All calls are on local mounts and answer at once; a path on a network
/// filesystem that hangs would hang the agent, and the liveness probe restarts it.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/core/result.h"
#include "agent/io/loop.h"
#include "probes/probe.h"

namespace imagefs_guard {

/// Where to look.
struct FilesystemPaths {
  std::string image_path;    // on the image filesystem
  std::string kubelet_path;  // on nodefs
};

/// Both paths' filesystems; one entry if they are on the same device. Sorted by device. An error
/// for either path is an error for all: half a picture could hide the device that fills.
[[nodiscard]] Result<std::vector<Filesystem>> read_filesystems(const FilesystemPaths& paths);

class FilesystemProbe final : public Probe {
 public:
  FilesystemProbe(EventLoop& loop, FilesystemPaths paths);

  [[nodiscard]] const char* name() const override { return "filesystem"; }

  /// Looks once a second, and asks for a tick when free space has changed by a lot: space that
  /// came back can release a pull.
  void start(std::function<void()> changed) override;
  void refresh(std::function<void()> done) override;
  void contribute(NodeSnapshot& snapshot) override;

 private:
  void look();

  EventLoop& loop_;
  FilesystemPaths paths_;
  Result<std::vector<Filesystem>> latest_;
  std::optional<std::vector<Filesystem>> contributed_;
  std::function<void()> changed_;
  std::unique_ptr<Timer> timer_;
};

}  // namespace imagefs_guard
