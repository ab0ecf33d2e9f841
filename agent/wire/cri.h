#pragma once
/// CRI v1 messages, as far as the agent uses them. Pure and bounded; a malformed reply is
/// InvalidArgument.

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "agent/core/result.h"

namespace imagefs_guard::wire {

constexpr std::size_t kCriImagesLimit = 20'000;
constexpr std::size_t kCriListLimit = 1'000;

struct CriVersion {
  std::string runtime_name;
  std::string runtime_version;
  std::string runtime_api_version;

  bool operator==(const CriVersion&) const = default;
};

[[nodiscard]] std::string encode_cri_version();
[[nodiscard]] Result<CriVersion> decode_cri_version(std::string_view message);

struct CriFilesystemUsage {
  std::string mountpoint;
  std::int64_t used_bytes = 0;  // snapshots only: containerd does not count its content store
  std::int64_t inodes_used = 0;

  bool operator==(const CriFilesystemUsage&) const = default;
};

/// The image filesystems in ImageFsInfo's reply.
[[nodiscard]] Result<std::vector<CriFilesystemUsage>> decode_image_fs_info(
    std::string_view message);

/// RemoveImage; also PullImage, whose first field is the same.
[[nodiscard]] std::string encode_image_spec_request(std::string_view image);

struct CriImage {
  std::string id;  // config digest
  std::vector<std::string> repo_tags;
  std::vector<std::string> repo_digests;
  std::uint64_t compressed_bytes = 0;  // containerd: compressed layers plus metadata
  bool pinned = false;

  bool operator==(const CriImage&) const = default;
};

/// ListImages' reply (its request is empty).
[[nodiscard]] Result<std::vector<CriImage>> decode_cri_images(std::string_view message);

struct CriCondition {
  std::string type;  // "RuntimeReady"
  bool status = false;
  std::string reason;
  std::string message;

  bool operator==(const CriCondition&) const = default;
};

struct CriStatus {
  std::vector<CriCondition> conditions;
  std::map<std::string, std::string> info;  // "config": containerd's configuration as JSON

  bool operator==(const CriStatus&) const = default;
};

/// Verbose: with `info`.
[[nodiscard]] std::string encode_cri_status();
[[nodiscard]] Result<CriStatus> decode_cri_status(std::string_view message);

}  // namespace imagefs_guard::wire
