// untested: a helper of tests.
#include "agent/runtime/containerd_process.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "agent/core/sha256.h"
#include "agent/core/verify.h"

namespace imagefs_guard {

namespace {

constexpr const char* kManifestType = "application/vnd.oci.image.manifest.v1+json";

std::string quoted(const Digest& digest) {
  return "\"" + to_string(digest) + "\"";
}

std::string descriptor(const char* type, const Digest& digest, std::size_t bytes) {
  return std::string("{\"mediaType\":\"") + type + "\",\"digest\":" + quoted(digest) +
         ",\"size\":" + std::to_string(bytes) + "}";
}

std::string octal(std::uint64_t value, int digits) {
  std::string text(static_cast<std::size_t>(digits), '0');
  for (int at = digits - 1; at >= 0; --at) {
    text[static_cast<std::size_t>(at)] = static_cast<char>('0' + (value & 7));
    value >>= 3;
  }
  return text + '\0';
}

/// A ustar archive with one file.
std::string tar(const std::string& name, const std::string& content) {
  std::string header = name;
  header.resize(100);
  header += octal(0644, 7) + octal(0, 7) + octal(0, 7) + octal(content.size(), 11) + octal(0, 11) +
            "        0";
  header.resize(257);
  header += std::string(
      "ustar\0"
      "00",
      8);
  header.resize(512);
  std::uint64_t sum = 0;
  for (const char c : header) {
    sum += static_cast<unsigned char>(c);
  }
  header.replace(148, 8, octal(sum, 6) + " ");
  std::string archive = header + content;
  archive.resize((archive.size() + 511) / 512 * 512 + 1024);
  return archive;
}

std::string config_file(const std::string& directory) {
  return "version = 2\n"
         "root = \"" +
         directory +
         "/root\"\n"
         "state = \"" +
         directory +
         "/state\"\n"
         "[grpc]\n"
         "address = \"" +
         directory +
         "/c.sock\"\n"
         "[plugins.\"io.containerd.internal.v1.opt\"]\n"
         "path = \"" +
         directory +
         "/opt\"\n"
         "[plugins.\"io.containerd.grpc.v1.cri\".containerd]\n"
         "discard_unpacked_layers = true\n"
         "[plugins.\"io.containerd.grpc.v1.cri\".cni]\n"
         "conf_dir = \"" +
         directory +
         "/cni\"\n"
         "bin_dir = \"" +
         directory + "/cni-bin\"\n";
}

}  // namespace

std::string containerd_binary() {
  if (geteuid() != 0) {
    return "";
  }
  const char* given = std::getenv("IMAGEFS_GUARD_CONTAINERD");
  const std::string path = given != nullptr ? given : "/usr/bin/containerd";
  return access(path.c_str(), X_OK) == 0 ? path : "";
}

ContainerdProcess::ContainerdProcess(std::string binary) : binary_(std::move(binary)) {
  std::string pattern = std::filesystem::temp_directory_path() / "ifg-XXXXXX";
  VERIFY(mkdtemp(pattern.data()) != nullptr);
  directory_ = pattern;
  std::ofstream(directory_ + "/config.toml") << config_file(directory_);
  std::filesystem::create_directory(directory_ + "/cni");
}

ContainerdProcess::~ContainerdProcess() {
  stop();
  std::error_code ignored;
  std::filesystem::remove_all(directory_, ignored);
}

void ContainerdProcess::start() {
  VERIFY(pid_ < 0);
  pid_ = fork();
  VERIFY(pid_ >= 0);
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const int log_fd = open((directory_ + "/log").c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    dup2(log_fd, STDOUT_FILENO);
    dup2(log_fd, STDERR_FILENO);
    const std::string config = directory_ + "/config.toml";
    execl(binary_.c_str(), "containerd", "--config", config.c_str(), nullptr);
    _exit(127);
  }
}

void ContainerdProcess::stop() {
  if (pid_ < 0) {
    return;
  }
  kill(pid_, SIGTERM);
  // It ends within some ten milliseconds, as it has no containers.
  for (int round = 0; round < 500; ++round) {
    if (waitpid(pid_, nullptr, WNOHANG) == pid_) {
      pid_ = -1;
      return;
    }
    usleep(10'000);
  }
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

std::string ContainerdProcess::log() const {
  std::ostringstream text;
  text << std::ifstream(directory_ + "/log").rdbuf();
  return text.str();
}

HoldPull TestImage::hold() const {
  HoldPull pull{.manifest_digest = manifest_digest,
                .image = "test",
                .config = {.ref = "config-" + to_string(config_digest), .expected = config_digest},
                .layers = {},
                .reason = "test"};
  for (const Digest& digest : layer_digests) {
    pull.layers.push_back({.ref = "layer-" + to_string(digest), .expected = digest});
  }
  return pull;
}

TestImage make_image(char seed, std::vector<std::size_t> layer_bytes) {
  TestImage image;
  std::string diff_ids;
  std::string descriptors;
  for (std::size_t i = 0; i < layer_bytes.size(); ++i) {
    const char fill = static_cast<char>(seed + static_cast<char>(i));
    const std::string layer = tar(std::string("file-") + fill, std::string(layer_bytes[i], fill));
    const char* comma = i == 0 ? "" : ",";
    const Digest digest = sha256(layer);
    diff_ids += comma + quoted(digest);
    descriptors +=
        comma + descriptor("application/vnd.oci.image.layer.v1.tar", digest, layer.size());
    image.layers.push_back(layer);
    image.layer_digests.push_back(digest);
  }
  image.config =
      "{\"architecture\":\"amd64\",\"os\":\"linux\",\"config\":{},\"rootfs\":{\"type\":\"layers\","
      "\"diff_ids\":[" +
      diff_ids + "]}}";
  image.config_digest = sha256(image.config);
  image.manifest =
      std::string("{\"schemaVersion\":2,\"mediaType\":\"") + kManifestType + "\",\"config\":" +
      descriptor(
          "application/vnd.oci.image.config.v1+json", image.config_digest, image.config.size()) +
      ",\"layers\":[" + descriptors + "]}";
  image.manifest_digest = sha256(image.manifest);
  return image;
}

TestRegistry::TestRegistry(EventLoop& loop)
    : server_(LoopbackServer::create(
          loop, [this](const LoopbackRequest& request) { return serve(request); })) {}

void TestRegistry::add(const std::string& name, const TestImage& image) {
  images_[name] = image;
}

std::string TestRegistry::reference(const std::string& name) const {
  return "127.0.0.1:" + std::to_string(server_->port()) + "/" + name + ":1";
}

int TestRegistry::fetches(const Digest& digest) const {
  const auto found = fetches_.find(to_string(digest));
  return found != fetches_.end() ? found->second : 0;
}

LoopbackReply TestRegistry::serve(const LoopbackRequest& request) {
  const std::string path = request.target.substr(0, request.target.find('?'));
  for (const auto& [name, image] : images_) {
    const std::string prefix = "/v2/" + name + "/";
    if (!path.starts_with(prefix)) {
      continue;
    }
    const std::string digest = path.substr(path.rfind('/') + 1);
    if (path == prefix + "manifests/1" || digest == to_string(image.manifest_digest)) {
      return {.headers = {std::string("Content-Type: ") + kManifestType,
                          "Docker-Content-Digest: " + to_string(image.manifest_digest)},
              .body = image.manifest};
    }
    if (request.method == "GET") {
      ++fetches_[digest];
    }
    if (digest == to_string(image.config_digest)) {
      return {.body = image.config, .piece_bytes = config_piece_bytes};
    }
    for (std::size_t i = 0; i < image.layers.size(); ++i) {
      if (digest == to_string(image.layer_digests[i])) {
        return {.body = image.layers[i], .piece_bytes = layer_piece_bytes};
      }
    }
  }
  return {.status = path == "/v2/" ? 200 : 404};
}

}  // namespace imagefs_guard
