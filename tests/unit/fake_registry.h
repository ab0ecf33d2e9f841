#pragma once
/// Images made up for tests, and registries that serve them over FakeHttp.

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "agent/core/sha256.h"
#include "agent/registry/credentials.h"
#include "agent/wire/manifest.h"
#include "tests/unit/fake_http.h"

namespace imagefs_guard {

/// Environment variables and files that the test changes at will.
struct FakeEnvironment {
  std::map<std::string, std::string> variables;
  std::map<std::string, std::string> files;

  /// Refers to this object.
  [[nodiscard]] CredentialEnvironment environment() {
    return CredentialEnvironment{
        .variable = [this](const char* name) -> std::optional<std::string> {
          const auto found = variables.find(name);
          return found == variables.end() ? std::nullopt : std::optional(found->second);
        },
        .read_file = [this](const std::string& path, std::size_t) -> Result<std::string> {
          const auto found = files.find(path);
          if (found == files.end()) {
            return Error{ErrorKind::NotFound, path};
          }
          return found->second;
        }};
  }
};

constexpr const char* kOciManifestType = "application/vnd.oci.image.manifest.v1+json";
constexpr const char* kOciIndexType = "application/vnd.oci.image.index.v1+json";

/// An image of `layers` layers of 1000, 1001, … bytes; `name` makes its digests its own.
struct FakeImage {
  explicit FakeImage(const std::string& name, int layers = 2) {
    std::string diff_ids;
    std::string descriptors;
    for (int i = 0; i < layers; ++i) {
      const std::string comma = i == 0 ? "" : ",";
      const std::string layer = name + "/" + std::to_string(i);
      diff_ids += comma + "\"" + to_string(sha256("diff " + layer)) + "\"";
      descriptors += comma + R"({"mediaType":"application/vnd.oci.image.layer.v1.tar+gzip",)" +
                     R"("digest":")" + to_string(sha256(layer)) + R"(","size":)" +
                     std::to_string(1000 + i) + "}";
    }
    config = R"({"os":"linux","architecture":"amd64","rootfs":{"type":"layers","diff_ids":[)" +
             diff_ids + "]}}";
    manifest = std::string(R"({"schemaVersion":2,"mediaType":")") + kOciManifestType +
               R"(","config":{"mediaType":"application/vnd.oci.image.config.v1+json","digest":")" +
               to_string(sha256(config)) + R"(","size":)" + std::to_string(config.size()) +
               R"(},"layers":[)" + descriptors + "]}";
  }

  [[nodiscard]] Digest digest() const { return sha256(manifest); }

  [[nodiscard]] std::string manifest_path() const { return "manifests/" + to_string(digest()); }

  [[nodiscard]] std::string config_path() const { return "blobs/" + to_string(sha256(config)); }

  std::string config;
  std::string manifest;
};

inline HttpResponse ok(std::string body, const std::string& content_type = "application/json") {
  return HttpResponse{
      .status = 200, .headers = {{"content-type", content_type}}, .body = std::move(body)};
}

inline HttpResponse status(int code, std::string body = "") {
  return HttpResponse{.status = code, .headers = {}, .body = std::move(body)};
}

inline HttpResponse challenge(const std::string& www_authenticate) {
  return HttpResponse{.status = 401,
                      .headers = {{"www-authenticate", www_authenticate}},
                      .body = R"({"errors":[{"code":"UNAUTHORIZED","message":"login"}]})"};
}

/// Serves the image as `base`/v2/`repository`, by tag and by digest, to whoever asks.
inline void serve(FakeHttp& http,
                  const std::string& base_and_repository,
                  const std::string& tag,
                  const FakeImage& image) {
  const std::string url = "GET " + base_and_repository + "/";
  http.reply(url + "manifests/" + tag, ok(image.manifest, kOciManifestType));
  http.reply(url + image.manifest_path(), ok(image.manifest, kOciManifestType));
  http.reply(url + image.config_path(), ok(image.config, "application/octet-stream"));
}

}  // namespace imagefs_guard
