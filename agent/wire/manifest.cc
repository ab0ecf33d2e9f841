#include "agent/wire/manifest.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <limits>
#include <system_error>
#include <utility>

#include "agent/core/sha256.h"
#include "agent/core/text.h"
#include "agent/wire/json.h"

namespace imagefs_guard {

namespace {

constexpr int kManifestDepthLimit = 32;
constexpr std::size_t kExcerpt = 100;
/// Half a pebibyte is no layer; sums of kLayerLimit such sizes still fit int64.
constexpr std::int64_t kBlobBytesLimit = std::int64_t{1} << 49;

constexpr std::string_view kRefNameAnnotation = "org.opencontainers.image.ref.name";
constexpr std::string_view kReferenceTypeAnnotation = "vnd.docker.reference.type";

Error invalid(const std::string& what) {
  return Error{ErrorKind::InvalidArgument, what};
}

std::string excerpt(std::string_view text) {
  return "\"" + std::string(text.substr(0, kExcerpt)) + "\"";
}

// ---- media types -------------------------------------------------------------------------------

bool is_index_type(std::string_view type) {
  return type == "application/vnd.oci.image.index.v1+json" ||
         type == "application/vnd.docker.distribution.manifest.list.v2+json";
}

bool is_manifest_type(std::string_view type) {
  return type == "application/vnd.oci.image.manifest.v1+json" ||
         type == "application/vnd.docker.distribution.manifest.v2+json";
}

bool is_schema1_type(std::string_view type) {
  return type.starts_with("application/vnd.docker.distribution.manifest.v1+");
}

bool is_config_type(std::string_view type) {
  return type == "application/vnd.oci.image.config.v1+json" ||
         type == "application/vnd.docker.container.image.v1+json";
}

constexpr std::string_view kOciLayer = "application/vnd.oci.image.layer.";
constexpr std::string_view kOciForeignLayer = "application/vnd.oci.image.layer.nondistributable.";
constexpr std::string_view kDockerLayer = "application/vnd.docker.image.rootfs.diff.tar";
constexpr std::string_view kDockerForeignLayer =
    "application/vnd.docker.image.rootfs.foreign.diff.tar";
constexpr std::string_view kErofsLayer = "application/vnd.erofs.layer.v1";

/// What containerd counts and unpacks as a layer. Everything else (in-toto statements, say) is
/// fetched but never unpacked.
bool is_layer_type(std::string_view type) {
  return type.starts_with(kOciLayer) || type.starts_with(kDockerLayer) ||
         type.starts_with(kDockerForeignLayer) || type.starts_with(kErofsLayer);
}

bool is_foreign_type(std::string_view type) {
  return type.starts_with(kOciForeignLayer) || type.starts_with(kDockerForeignLayer);
}

LayerCompression compression_of(std::string_view type) {
  if (type.starts_with(kErofsLayer)) {
    return LayerCompression::Unknown;
  }
  const std::size_t tar = type.find(".tar");
  if (tar == std::string_view::npos) {
    return LayerCompression::Unknown;
  }
  std::string_view suffix = type.substr(tar + 4);
  if (suffix.ends_with("+encrypted")) {
    suffix.remove_suffix(std::string_view("+encrypted").size());
  }
  if (suffix.empty()) {
    return LayerCompression::None;
  }
  if (suffix == "+gzip" || suffix == ".gzip") {
    return LayerCompression::Gzip;
  }
  return suffix == "+zstd" || suffix == ".zstd" ? LayerCompression::Zstd
                                                : LayerCompression::Unknown;
}

std::string_view without_parameters(std::string_view content_type) {
  std::string_view type = content_type.substr(0, content_type.find(';'));
  while (type.ends_with(' ')) {
    type.remove_suffix(1);
  }
  return type;
}

// ---- platforms ---------------------------------------------------------------------------------

Platform normalized(const Platform& platform) {
  Platform result{lower(platform.os), lower(platform.architecture), lower(platform.variant)};
  std::string& arch = result.architecture;
  std::string& variant = result.variant;
  if (arch == "x86_64" || arch == "x86-64") {
    arch = "amd64";
  } else if (arch == "aarch64") {
    arch = "arm64";
  } else if (arch == "i386") {
    arch = "386";
  } else if (arch == "armhf") {
    arch = "arm";
    variant = "v7";
  } else if (arch == "armel") {
    arch = "arm";
    variant = "v6";
  }
  if (arch == "386" || (arch == "amd64" && variant == "v1")) {
    variant.clear();
  } else if (arch == "arm64" && (variant == "8" || variant == "v8" || variant == "v8.0")) {
    variant.clear();
  } else if (arch == "arm") {
    variant = variant.empty() ? "v7" : variant;
    variant = variant.starts_with('v') ? variant : "v" + variant;
  }
  return result;
}

/// 3 of "v3"; 0 of anything else.
int variant_number(std::string_view variant) {
  int number = 0;
  if (variant.starts_with('v')) {
    const auto [end, error] =
        std::from_chars(variant.data() + 1, variant.data() + variant.size(), number);
    if (error != std::errc() || end != variant.data() + variant.size()) {
      return 0;
    }
  }
  return number;
}

void add_descending(std::vector<Platform>& vector, const Platform& from, int lowest) {
  constexpr int kVariantLimit = 32;
  for (int v = std::min(variant_number(from.variant), kVariantLimit); v >= lowest; --v) {
    vector.push_back({from.os, from.architecture, "v" + std::to_string(v)});
  }
}

/// What a node runs, best first.
std::vector<Platform> platform_vector(const Platform& node) {
  std::vector<Platform> vector;
  if (node.architecture == "amd64") {
    add_descending(vector, node, 2);
    vector.push_back({node.os, "amd64", ""});
    vector.push_back({node.os, "386", ""});
  } else if (node.architecture == "arm64") {
    if (!node.variant.empty()) {
      vector.push_back(node);
    }
    vector.push_back({node.os, "arm64", ""});
    add_descending(vector, {node.os, "arm", "v8"}, 5);
  } else if (node.architecture == "arm") {
    add_descending(vector, node, 5);
  } else {
    vector.push_back(node);
  }
  return vector;
}

std::string platform_text(const Platform& platform) {
  std::string text = platform.os + "/" + platform.architecture;
  return platform.variant.empty() ? text : text + "/" + platform.variant;
}

Platform platform_of(JsonView view) {
  return Platform{.os = std::string(view["os"].text()),
                  .architecture = std::string(view["architecture"].text()),
                  .variant = std::string(view["variant"].text())};
}

// ---- descriptors -------------------------------------------------------------------------------

/// Go reads "LAYERS" as "layers", JSON does not: what the runtime would see must be what we see.
Result<void> refuse_odd_case(JsonView object, const std::string& what) {
  static constexpr std::array<std::string_view, 8> kNames = {
      "mediaType", "schemaVersion", "manifests", "config", "layers", "digest", "size", "fsLayers"};
  std::string odd;
  object.for_each_member([&odd](std::string_view key, JsonView) {
    for (const std::string_view name : kNames) {
      if (key.size() == name.size() && key != name && lower(key) == lower(name)) {
        odd = std::string(key);
      }
    }
  });
  return odd.empty() ? Result<void>() : invalid(what + ": a member named " + excerpt(odd));
}

struct Descriptor {
  std::string_view media_type;
  Digest digest;
  std::int64_t bytes = 0;
};

Result<Descriptor> read_descriptor(JsonView view, const std::string& what) {
  if (!view.is_object()) {
    return invalid(what + ": expected a descriptor, got " + view.type_name());
  }
  TRY(refuse_odd_case(view, what));
  Descriptor descriptor;
  descriptor.media_type = view["mediaType"].text();
  const std::string_view digest_text = view["digest"].text();
  const std::optional<Digest> digest = parse_digest(digest_text);
  if (!digest) {
    if (digest_text.starts_with("sha512:")) {
      return Error{ErrorKind::Unimplemented, what + ": sha512 digests are not supported"};
    }
    return invalid(what + ": " + excerpt(digest_text) + " is no sha256 digest");
  }
  descriptor.digest = *digest;
  const std::optional<std::int64_t> bytes = view["size"].integer();
  if (!bytes) {
    return invalid(what + ": its size is no whole number of 64 bits");
  }
  if (*bytes < 0 || *bytes > kBlobBytesLimit) {
    return invalid(what + ": a size of " + std::to_string(*bytes) + " bytes");
  }
  descriptor.bytes = *bytes;
  return descriptor;
}

// ---- index -------------------------------------------------------------------------------------

bool is_attestation(JsonView entry, const std::optional<Platform>& platform) {
  return entry["annotations"][kReferenceTypeAnnotation].text() == "attestation-manifest" ||
         (platform && platform->os == "unknown" && platform->architecture == "unknown");
}

Result<ImageIndex> read_index(JsonView root, const Platform& node) {
  const JsonView entries = root["manifests"];
  if (!entries.is_array()) {
    return invalid(std::string("an index whose manifests are ") + entries.type_name());
  }
  if (entries.size() > kIndexEntryLimit) {
    return invalid("an index of " + std::to_string(entries.size()) + " entries, more than " +
                   std::to_string(kIndexEntryLimit));
  }

  struct Ranked {
    std::size_t rank;
    IndexEntry entry;
  };

  std::vector<Ranked> ranked;
  ImageIndex index;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const JsonView entry = entries.at(i);
    std::optional<Platform> platform;
    if (entry["platform"].is_object() && !entry["platform"]["architecture"].text().empty()) {
      platform = platform_of(entry["platform"]);
    }
    const std::string_view type = entry["mediaType"].text();
    const bool known_type = type.empty() || is_index_type(type) || is_manifest_type(type);
    if (!known_type || is_attestation(entry, platform)) {
      continue;
    }
    if (platform && index.platforms.size() < kExcerpt) {
      index.platforms += (index.platforms.empty() ? "" : ", ") + platform_text(*platform);
    }
    const std::optional<std::size_t> rank =
        platform ? platform_rank(node, *platform) : std::numeric_limits<std::size_t>::max();
    if (rank) {
      const Descriptor d = TRY(read_descriptor(entry, "manifest " + std::to_string(i + 1)));
      ranked.push_back({*rank, IndexEntry{d.digest, d.bytes, platform}});
    }
  }
  std::ranges::stable_sort(ranked, {}, &Ranked::rank);
  for (Ranked& one : ranked) {
    index.entries.push_back(std::move(one.entry));
  }
  return index;
}

// ---- manifest ----------------------------------------------------------------------------------

std::optional<std::int64_t> decimal_bytes(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value <= 0 ||
      value > kBlobBytesLimit) {
    return std::nullopt;
  }
  return value;
}

/// What annotations claim; whether it is plausible is core's to judge.
void read_size_annotations(JsonView annotations, Layer& layer) {
  for (const std::string_view key :
       {"io.containers.estargz.uncompressed-size", "ci.umo.uncompressed_blob_size"}) {
    if (const auto bytes = decimal_bytes(annotations[key].text())) {
      layer.facts.push_back(SizeFact{.source = SizeSource::Annotation, .bytes = *bytes});
    }
  }
}

LayerHints read_hints(JsonView annotations) {
  LayerHints hints;
  hints.ref_name = std::string(annotations[kRefNameAnnotation].text());
  hints.stargz_toc_digest =
      std::string(annotations["containerd.io/snapshot/stargz/toc.digest"].text());
  for (const std::string_view prefix :
       {"io.github.containers.zstd-chunked.", "io.containers.zstd-chunked."}) {
    const JsonView position = annotations[std::string(prefix) + "manifest-position"];
    if (position && hints.zstd_chunked_position.empty()) {
      hints.zstd_chunked_position = std::string(position.text());
      hints.zstd_chunked_checksum =
          std::string(annotations[std::string(prefix) + "manifest-checksum"].text());
      hints.zstd_chunked_legacy_footer = prefix == "io.containers.zstd-chunked.";
    }
  }
  return hints;
}

/// An artifact carries something else than a filesystem: a Helm chart, a signature, a model.
Result<void> refuse_artifact(JsonView root) {
  const std::string_view artifact_type = root["artifactType"].text();
  const std::string_view config_type = root["config"]["mediaType"].text();
  if (!is_config_type(config_type) && !(config_type.empty() && artifact_type.empty())) {
    return Error{ErrorKind::Unimplemented,
                 "an artifact, not an image: " +
                     excerpt(artifact_type.empty() ? config_type : artifact_type)};
  }
  return {};
}

std::string config_ref(JsonView config, const Digest& digest) {
  const std::string_view name = config["annotations"][kRefNameAnnotation].text();
  return name.empty() ? "config-" + to_string(digest)
                      : "config-" + std::string(name) + "@" + to_string(digest);
}

Result<ParsedManifest> read_manifest(JsonView root, const Digest& digest) {
  TRY(refuse_artifact(root));
  const Descriptor config = TRY(read_descriptor(root["config"], "config"));
  const JsonView layers = root["layers"];
  if (layers && !layers.is_array()) {
    return invalid(std::string("layers are ") + layers.type_name());
  }
  if (layers.size() > kLayerLimit) {
    return invalid("a manifest of " + std::to_string(layers.size()) + " layers, more than " +
                   std::to_string(kLayerLimit));
  }
  ParsedManifest parsed;
  parsed.image.manifest_digest = digest;
  parsed.image.config_digest = config.digest;
  parsed.image.config_bytes = config.bytes;
  parsed.image.config_ref = config_ref(root["config"], config.digest);
  parsed.soci_index_digest =
      std::string(root["annotations"]["com.amazon.soci.index-digest"].text());
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const Descriptor d = TRY(read_descriptor(layers.at(i), "layer " + std::to_string(i + 1)));
    if (!is_layer_type(d.media_type)) {
      continue;
    }
    Layer layer;
    layer.digest = d.digest;
    layer.compressed_bytes = d.bytes;
    layer.compression = compression_of(d.media_type);
    layer.foreign = is_foreign_type(d.media_type);
    read_size_annotations(layers.at(i)["annotations"], layer);
    parsed.hints.push_back(read_hints(layers.at(i)["annotations"]));
    parsed.image.layers.push_back(std::move(layer));
  }
  return parsed;
}

enum class BodyKind { Index, Manifest };

/// The two declarations must agree with each other and with the members that are there: the same
/// bytes must never be an index to us and a manifest to the runtime.
Result<BodyKind> kind_of(JsonView root, std::string_view content_type) {
  const std::string_view declared = root["mediaType"].text();
  const std::string_view sent = without_parameters(content_type);
  if (is_schema1_type(declared) || is_schema1_type(sent) || root["fsLayers"] ||
      root["schemaVersion"].integer() == 1) {
    return Error{ErrorKind::Unimplemented,
                 "a schema 1 manifest has no sizes, and containerd 2 refuses it"};
  }
  const bool has_index_members = static_cast<bool>(root["manifests"]);
  const bool has_manifest_members = root["config"] || root["layers"];
  if (has_index_members && has_manifest_members) {
    return invalid("both an index and a manifest");
  }
  const bool says_index = is_index_type(declared) || is_index_type(sent);
  const bool says_manifest = is_manifest_type(declared) || is_manifest_type(sent);
  if ((says_index && (says_manifest || has_manifest_members)) ||
      (says_manifest && has_index_members)) {
    return invalid("declared as " + excerpt(declared.empty() ? sent : declared) +
                   ", but the content is something else");
  }
  if (has_index_members) {
    return BodyKind::Index;
  }
  if (root["config"]) {
    return BodyKind::Manifest;
  }
  if (!declared.empty() && !says_index && !says_manifest) {
    return Error{ErrorKind::Unimplemented, "media type " + excerpt(declared)};
  }
  return invalid("neither an index nor a manifest");
}

}  // namespace

Platform build_platform() {
#if defined(__x86_64__)
  return {"linux", "amd64", ""};
#elif defined(__aarch64__)
  return {"linux", "arm64", ""};
#else
#error "only amd64 and arm64 nodes are supported"
#endif
}

std::optional<std::size_t> platform_rank(const Platform& node, const Platform& candidate) {
  const std::vector<Platform> accepted = platform_vector(normalized(node));
  const auto found = std::ranges::find(accepted, normalized(candidate));
  if (found == accepted.end()) {
    return std::nullopt;
  }
  return static_cast<std::size_t>(found - accepted.begin());
}

Result<IndexOrManifest> parse_manifest(const ManifestBody& body, const Platform& node) {
  const JsonDocument document =
      TRY(parse_json(body.bytes, {.bytes = kManifestBytesLimit, .depth = kManifestDepthLimit}));
  const JsonView root = document.root();
  if (!root.is_object()) {
    return invalid(std::string("expected a manifest, got ") + root.type_name());
  }
  TRY(refuse_odd_case(root, "manifest"));
  IndexOrManifest result;
  switch (TRY(kind_of(root, body.content_type))) {
    case BodyKind::Index:
      result.index = TRY(read_index(root, node));
      break;
    case BodyKind::Manifest:
      result.manifest = TRY(read_manifest(root, body.digest));
      break;
  }
  return result;
}

Result<ImageConfig> parse_image_config(std::string_view bytes) {
  const JsonDocument document = TRY(parse_json(bytes, {.bytes = kConfigBytesLimit}));
  const JsonView root = document.root();
  if (!root.is_object()) {
    return invalid(std::string("expected an image config, got ") + root.type_name());
  }
  const JsonView diff_ids = root["rootfs"]["diff_ids"];
  if (diff_ids && !diff_ids.is_array()) {
    return invalid(std::string("rootfs.diff_ids is ") + diff_ids.type_name());
  }
  if (diff_ids.size() > kLayerLimit) {
    return invalid("rootfs.diff_ids has " + std::to_string(diff_ids.size()) + " entries");
  }
  ImageConfig config;
  config.platform = platform_of(root);
  config.diff_ids.reserve(diff_ids.size());
  for (std::size_t i = 0; i < diff_ids.size(); ++i) {
    const std::optional<Digest> diff_id = parse_digest(diff_ids.at(i).text());
    if (!diff_id) {
      return invalid("rootfs.diff_ids: " + excerpt(diff_ids.at(i).scalar_text()) +
                     " is no sha256 digest");
    }
    config.diff_ids.push_back(*diff_id);
  }
  return config;
}

Result<void> add_config(const ImageConfig& config, ImageManifest& image) {
  if (config.diff_ids.size() != image.layers.size()) {
    return invalid("the config names " + std::to_string(config.diff_ids.size()) +
                   " layers, the manifest " + std::to_string(image.layers.size()) +
                   ": no runtime unpacks that");
  }
  Digest chain_id;
  for (std::size_t i = 0; i < image.layers.size(); ++i) {
    chain_id = i == 0 ? config.diff_ids[i] : chain_id_of(chain_id, config.diff_ids[i]);
    image.layers[i].diff_id = config.diff_ids[i];
    image.layers[i].chain_id = chain_id;
  }
  return {};
}

}  // namespace imagefs_guard
