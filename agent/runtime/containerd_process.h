#pragma once
/// For tests only: a real containerd with root, state, socket and configuration in a directory of
/// its own, and an image in a registry that the test itself serves. Ends with the test, whatever
/// ends that.

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "agent/core/action.h"
#include "agent/core/digest.h"
#include "agent/io/loopback_server.h"

namespace imagefs_guard {

/// The binary: $IMAGEFS_GUARD_CONTAINERD or Debian's. Empty if there is none, or no root.
[[nodiscard]] std::string containerd_binary();

class ContainerdProcess {
 public:
  explicit ContainerdProcess(std::string binary);
  ContainerdProcess(const ContainerdProcess&) = delete;
  ContainerdProcess& operator=(const ContainerdProcess&) = delete;
  ~ContainerdProcess();

  void start();
  void stop();

  [[nodiscard]] std::string socket() const { return directory_ + "/c.sock"; }

  [[nodiscard]] std::string log() const;

 private:
  std::string binary_;
  std::string directory_;
  pid_t pid_ = -1;
};

/// An image of uncompressed layers, each with one file.
struct TestImage {
  std::string manifest;
  Digest manifest_digest;
  std::string config;
  Digest config_digest;
  std::vector<std::string> layers;
  std::vector<Digest> layer_digests;

  [[nodiscard]] HoldPull hold() const;
};

/// `seed` makes its layers differ from other images'.
[[nodiscard]] TestImage make_image(char seed, std::vector<std::size_t> layer_bytes);

/// A Registry v2 for pulls by tag: "<host:port>/<name>:1".
class TestRegistry {
 public:
  explicit TestRegistry(EventLoop& loop);

  void add(const std::string& name, const TestImage& image);
  [[nodiscard]] std::string reference(const std::string& name) const;

  /// GETs of that blob.
  [[nodiscard]] int fetches(const Digest& digest) const;

  /// Body bytes are sent in pieces of this size, 10 ms apart; 0 = at once.
  std::size_t config_piece_bytes = 0;
  std::size_t layer_piece_bytes = 0;

 private:
  LoopbackReply serve(const LoopbackRequest& request);

  std::map<std::string, TestImage> images_;
  std::map<std::string, int> fetches_;
  std::unique_ptr<LoopbackServer> server_;
};

}  // namespace imagefs_guard
