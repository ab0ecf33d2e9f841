#include "agent/wire/manifest.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "agent/core/sha256.h"

namespace imagefs_guard::manifest_test {

namespace {

const Platform kAmd64{"linux", "amd64", ""};
constexpr const char* kOciManifest = "application/vnd.oci.image.manifest.v1+json";
constexpr const char* kOciIndex = "application/vnd.oci.image.index.v1+json";
constexpr const char* kOciLayerGzip = "application/vnd.oci.image.layer.v1.tar+gzip";
constexpr const char* kOciConfig = "application/vnd.oci.image.config.v1+json";

std::string digest_text(std::string_view seed) {
  return to_string(sha256(seed));
}

/// A descriptor; `more` is appended inside the object: R"(,"annotations":{…})".
std::string descriptor(std::string_view media_type,
                       std::string_view seed,
                       std::string_view size,
                       std::string_view more = "") {
  return std::string(R"({"mediaType":")") + std::string(media_type) + R"(","digest":")" +
         digest_text(seed) + R"(","size":)" + std::string(size) + std::string(more) + "}";
}

std::string manifest(const std::string& layers, const std::string& more = "") {
  return std::string(R"({"schemaVersion":2,"mediaType":")") + kOciManifest + R"(","config":)" +
         descriptor(kOciConfig, "config", "1000") + R"(,"layers":[)" + layers + "]" + more + "}";
}

std::string index_entry(std::string_view seed, std::string_view platform) {
  return descriptor(kOciManifest, seed, "500", R"(,"platform":)" + std::string(platform));
}

std::string index(const std::string& entries) {
  return std::string(R"({"schemaVersion":2,"mediaType":")") + kOciIndex + R"(","manifests":[)" +
         entries + "]}";
}

Result<IndexOrManifest> parse(const std::string& text,
                              std::string_view content_type = "",
                              const Platform& node = kAmd64) {
  return parse_manifest({text, content_type, sha256(text)}, node);
}

}  // namespace

TEST_CASE("manifest: layers with size, compression, kind and what is said about them") {
  struct Case {
    const char* media_type;
    LayerCompression compression;
    bool foreign;
  };

  const std::vector<Case> cases = {
      {"application/vnd.oci.image.layer.v1.tar", LayerCompression::None, false},
      {kOciLayerGzip, LayerCompression::Gzip, false},
      {"application/vnd.oci.image.layer.v1.tar+zstd", LayerCompression::Zstd, false},
      {"application/vnd.oci.image.layer.v1.tar+gzip+encrypted", LayerCompression::Gzip, false},
      {"application/vnd.oci.image.layer.nondistributable.v1.tar+gzip",
       LayerCompression::Gzip,
       true},
      {"application/vnd.docker.image.rootfs.diff.tar.gzip", LayerCompression::Gzip, false},
      {"application/vnd.docker.image.rootfs.diff.tar.zstd", LayerCompression::Zstd, false},
      {"application/vnd.docker.image.rootfs.diff.tar", LayerCompression::None, false},
      {"application/vnd.docker.image.rootfs.foreign.diff.tar.gzip", LayerCompression::Gzip, true},
      {"application/vnd.erofs.layer.v1", LayerCompression::Unknown, false},
      {"application/vnd.oci.image.layer.v1.tar+brotli", LayerCompression::Unknown, false},
  };
  std::string layers = descriptor("application/vnd.in-toto+json", "attestation", "10");
  for (const Case& c : cases) {
    layers += "," + descriptor(c.media_type, c.media_type, "123");
  }
  const std::string text = manifest(layers);
  const auto parsed = parse(text, "application/vnd.oci.image.manifest.v1+json; charset=utf-8");
  REQUIRE(parsed);
  REQUIRE(parsed->manifest);
  CHECK(!parsed->index);
  const ImageManifest& image = parsed->manifest->image;
  CHECK(image.manifest_digest == sha256(text));
  CHECK(image.config_digest == sha256("config"));
  CHECK(image.config_bytes == 1000);
  CHECK(image.config_ref == "config-" + digest_text("config"));
  REQUIRE(image.layers.size() == cases.size());  // the in-toto statement is no layer
  CHECK(parsed->manifest->hints.size() == cases.size());
  for (std::size_t i = 0; i < cases.size(); ++i) {
    CAPTURE(cases[i].media_type);
    CHECK(image.layers[i].digest == sha256(cases[i].media_type));
    CHECK(image.layers[i].compressed_bytes == 123);
    CHECK(image.layers[i].compression == cases[i].compression);
    CHECK(image.layers[i].foreign == cases[i].foreign);
    CHECK(image.layers[i].facts.empty());
  }
}

TEST_CASE("manifest: annotations become facts and hints") {
  const auto parsed = parse(manifest(
      descriptor(kOciLayerGzip,
                 "a",
                 "41569203",
                 R"(,"annotations":{"ci.umo.uncompressed_blob_size":"111523840"})") +
          "," +
          descriptor(kOciLayerGzip,
                     "b",
                     "10",
                     R"(,"annotations":{"io.containers.estargz.uncompressed-size":"2048",
                         "containerd.io/snapshot/stargz/toc.digest":"sha256:7",
                         "org.opencontainers.image.ref.name":"n"})") +
          "," +
          descriptor(kOciLayerGzip,
                     "c",
                     "10",
                     R"(,"annotations":{
                         "io.github.containers.zstd-chunked.manifest-position":"1:2:3:1",
                         "io.github.containers.zstd-chunked.manifest-checksum":"sha256:8",
                         "ci.umo.uncompressed_blob_size":"-5"})") +
          "," +
          descriptor(kOciLayerGzip,
                     "d",
                     "10",
                     R"(,"annotations":{"io.containers.zstd-chunked.manifest-position":"4:5:6:1",
                         "ci.umo.uncompressed_blob_size":"1e9"})"),
      R"(,"annotations":{"com.amazon.soci.index-digest":"sha256:9"})"));
  REQUIRE(parsed);
  const ParsedManifest& m = *parsed->manifest;
  CHECK(m.soci_index_digest == "sha256:9");
  CHECK(m.image.layers[0].facts ==
        std::vector<SizeFact>{{SizeSource::Annotation, 111'523'840, -1}});
  CHECK(m.image.layers[1].facts == std::vector<SizeFact>{{SizeSource::Annotation, 2048, -1}});
  CHECK(m.hints[1].stargz_toc_digest == "sha256:7");
  CHECK(m.hints[1].ref_name == "n");
  CHECK(m.image.layers[2].facts.empty());
  CHECK(m.hints[2].zstd_chunked_position == "1:2:3:1");
  CHECK(m.hints[2].zstd_chunked_checksum == "sha256:8");
  CHECK(!m.hints[2].zstd_chunked_legacy_footer);
  CHECK(m.image.layers[3].facts.empty());
  CHECK(m.hints[3].zstd_chunked_legacy_footer);
}

TEST_CASE("manifest: the config's ref carries its name if it has one") {
  const std::string text =
      R"({"schemaVersion":2,"config":)" +
      descriptor(kOciConfig,
                 "config",
                 "1",
                 R"(,"annotations":{"org.opencontainers.image.ref.name":"app"})") +
      R"(,"layers":[]})";
  const auto parsed = parse(text);
  REQUIRE(parsed);
  CHECK(parsed->manifest->image.config_ref == "config-app@" + digest_text("config"));
  CHECK(parsed->manifest->image.layers.empty());  // zero layers are legal
}

TEST_CASE("manifest: many layers, duplicates kept") {
  std::string layers;
  for (int i = 0; i < 1200; ++i) {
    layers += (i == 0 ? "" : ",") + descriptor(kOciLayerGzip, std::to_string(i % 600), "1");
  }
  const auto parsed = parse(manifest(layers));
  REQUIRE(parsed);
  CHECK(parsed->manifest->image.layers.size() == 1200);
  CHECK(parsed->manifest->image.layers[0].digest == parsed->manifest->image.layers[600].digest);
  std::string too_many = R"({"a":1})";
  for (std::size_t i = 0; i < kLayerLimit; ++i) {
    too_many += ",1";
  }
  CHECK(parse(manifest(too_many)).error().message == "a manifest of 10001 layers, more than 10000");
}

TEST_CASE("manifest: refused with a reason, never a size of 0") {
  struct Case {
    const char* name;
    std::string text;
    ErrorKind kind;
    std::string message;
  };

  const auto one_layer = [](std::string_view size) {
    return manifest(descriptor(kOciLayerGzip, "l", size));
  };
  const std::string config = descriptor(kOciConfig, "config", "1");
  for (const Case& c : std::vector<Case>{
           {"negative size",
            one_layer("-1"),
            ErrorKind::InvalidArgument,
            "layer 1: a size of -1 bytes"},
           {"float",
            one_layer("10.5"),
            ErrorKind::InvalidArgument,
            "layer 1: its size is no whole number of 64 bits"},
           {"float without fraction",
            one_layer("10.0"),
            ErrorKind::InvalidArgument,
            "layer 1: its size is no whole number of 64 bits"},
           {"exponent",
            one_layer("1e3"),
            ErrorKind::InvalidArgument,
            "layer 1: its size is no whole number of 64 bits"},
           {"over 64 bits",
            one_layer("18446744073709551616"),
            ErrorKind::InvalidArgument,
            "layer 1: its size is no whole number of 64 bits"},
           {"over int64",
            one_layer("9223372036854775808"),
            ErrorKind::InvalidArgument,
            "layer 1: its size is no whole number of 64 bits"},
           {"absurd",
            one_layer("9223372036854775807"),
            ErrorKind::InvalidArgument,
            "layer 1: a size of 9223372036854775807 bytes"},
           {"text",
            one_layer("\"10\""),
            ErrorKind::InvalidArgument,
            "layer 1: its size is no whole number of 64 bits"},
           {"null",
            one_layer("null"),
            ErrorKind::InvalidArgument,
            "layer 1: its size is no whole number of 64 bits"},
           {"no digest",
            manifest(R"({"mediaType":"x","size":1})"),
            ErrorKind::InvalidArgument,
            "layer 1: \"\" is no sha256 digest"},
           {"sha512",
            manifest(R"({"digest":"sha512:00","size":1})"),
            ErrorKind::Unimplemented,
            "layer 1: sha512 digests are not supported"},
           {"layer is a number",
            manifest("7"),
            ErrorKind::InvalidArgument,
            "layer 1: expected a descriptor, got a number"},
           {"layers are no list",
            R"({"config":)" + config + R"(,"layers":{}})",
            ErrorKind::InvalidArgument,
            "layers are an object"},
           {"both",
            R"({"config":)" + config + R"(,"manifests":[]})",
            ErrorKind::InvalidArgument,
            "both an index and a manifest"},
           {"index in manifest's clothes",
            std::string(R"({"mediaType":")") + kOciManifest + R"(","manifests":[]})",
            ErrorKind::InvalidArgument,
            std::string("declared as \"") + kOciManifest + "\", but the content is something else"},
           {"odd case hides layers from us",
            R"({"config":)" + config + R"(,"LAYERS":[]})",
            ErrorKind::InvalidArgument,
            "manifest: a member named \"LAYERS\""},
           {"odd case hides a size",
            manifest(R"({"Size":1,"size":2})"),
            ErrorKind::InvalidArgument,
            "layer 1: a member named \"Size\""},
           {"schema 1",
            R"({"schemaVersion":1,"fsLayers":[],"history":[]})",
            ErrorKind::Unimplemented,
            "a schema 1 manifest has no sizes, and containerd 2 refuses it"},
           {"artifact",
            R"({"artifactType":"application/x","config":)" +
                descriptor("application/vnd.oci.empty.v1+json", "{}", "2") + R"(,"layers":[]})",
            ErrorKind::Unimplemented,
            "an artifact, not an image: \"application/x\""},
           {"chart",
            R"({"config":)" + descriptor("application/vnd.cncf.helm.config.v1+json", "c", "2") +
                "}",
            ErrorKind::Unimplemented,
            "an artifact, not an image: \"application/vnd.cncf.helm.config.v1+json\""},
           {"something else",
            R"({"a":1})",
            ErrorKind::InvalidArgument,
            "neither an index nor a manifest"},
           {"a list", "[]", ErrorKind::InvalidArgument, "expected a manifest, got a list"},
           {"a page", "<html>", ErrorKind::InvalidArgument, "not JSON"},
           {"empty", "", ErrorKind::InvalidArgument, "not JSON"},
           {"deep", std::string(40, '['), ErrorKind::InvalidArgument, "JSON nested deeper than 32"},
           {"huge",
            std::string(kManifestBytesLimit + 1, ' '),
            ErrorKind::ResourceExhausted,
            "JSON of 4393217 bytes, more than 4393216"},
       }) {
    CAPTURE(c.name);
    const auto parsed = parse(c.text);
    REQUIRE(!parsed);
    CHECK(parsed.error().kind == c.kind);
    CHECK(parsed.error().message == c.message);
  }
  CHECK(parse(manifest(""), kOciIndex).error().kind == ErrorKind::InvalidArgument);
  CHECK(parse(index(""), kOciManifest).error().kind == ErrorKind::InvalidArgument);
  CHECK(parse(manifest(""), "application/vnd.docker.distribution.manifest.v1+prettyjws")
            .error()
            .kind == ErrorKind::Unimplemented);
}

TEST_CASE("index: entries for this node, best first; attestations and strangers left out") {
  const std::string text =
      index(index_entry("none", "null") + "," +
            index_entry("attestation", R"({"os":"unknown","architecture":"unknown"})") + "," +
            descriptor(kOciManifest,
                       "annotated",
                       "1",
                       R"(,"annotations":{"vnd.docker.reference.type":"attestation-manifest"})") +
            "," + descriptor("application/vnd.example+json", "stranger", "-1") + "," +
            index_entry("i386", R"({"os":"linux","architecture":"386"})") + "," +
            index_entry("arm", R"({"os":"linux","architecture":"arm64"})") + "," +
            index_entry("windows", R"({"os":"windows","architecture":"amd64"})") + "," +
            index_entry("v1", R"({"os":"linux","architecture":"amd64"})") + "," +
            index_entry("v3", R"({"os":"linux","architecture":"amd64","variant":"v3"})"));
  const auto entries = [&text](const Platform& node) {
    const auto parsed = parse(text, kOciIndex, node);
    REQUIRE(parsed);
    std::vector<Digest> digests;
    for (const IndexEntry& entry : parsed->index->entries) {
      digests.push_back(entry.digest);
    }
    return digests;
  };
  CHECK(entries(kAmd64) == std::vector<Digest>{sha256("v1"), sha256("i386"), sha256("none")});
  CHECK(entries({"linux", "amd64", "v4"}) ==
        std::vector<Digest>{sha256("v3"), sha256("v1"), sha256("i386"), sha256("none")});
  CHECK(entries({"linux", "arm64", "v8"}) == std::vector<Digest>{sha256("arm"), sha256("none")});
  CHECK(entries({"linux", "s390x", ""}) == std::vector<Digest>{sha256("none")});
  CHECK(parse(text)->index->platforms ==
        "linux/386, linux/arm64, windows/amd64, linux/amd64, linux/amd64/v3");
}

TEST_CASE("index: bounds") {
  std::string many = "1";
  for (std::size_t i = 0; i < kIndexEntryLimit; ++i) {
    many += ",1";
  }
  CHECK(parse(index(many)).error().message == "an index of 1001 entries, more than 1000");
  CHECK(parse(index(""))->index->entries.empty());
  CHECK(!parse(index(descriptor(kOciManifest, "a", "-1"))));
  CHECK(parse(R"({"manifests":{}})").error().message == "an index whose manifests are an object");
}

TEST_CASE("platform: containerd's order") {
  struct Case {
    Platform node;
    Platform candidate;
    std::optional<std::size_t> rank;
  };

  for (const Case& c : {
           Case{{"linux", "amd64", ""}, {"linux", "x86_64", ""}, 0},
           Case{{"linux", "amd64", ""}, {"linux", "amd64", "v1"}, 0},
           Case{{"linux", "amd64", ""}, {"linux", "amd64", "v2"}, std::nullopt},
           Case{{"linux", "amd64", "v3"}, {"Linux", "AMD64", "v2"}, 1},
           Case{{"linux", "amd64", ""}, {"linux", "i386", ""}, 1},
           Case{{"linux", "arm64", ""}, {"linux", "aarch64", "8"}, 0},
           Case{{"linux", "arm64", ""}, {"linux", "arm", ""}, 2},
           Case{{"linux", "arm64", ""}, {"linux", "arm", "6"}, 3},
           Case{{"linux", "arm", "v7"}, {"linux", "armhf", ""}, 0},
           Case{{"linux", "arm", "v7"}, {"linux", "arm", "v8"}, std::nullopt},
           Case{{"linux", "amd64", "v99999999999"}, {"linux", "amd64", ""}, 0},
           Case{{"linux", "riscv64", ""}, {"linux", "riscv64", ""}, 0},
       }) {
    CAPTURE(c.candidate.architecture);
    CAPTURE(c.candidate.variant);
    CHECK(platform_rank(c.node, c.candidate) == c.rank);
  }
  CHECK(platform_rank(build_platform(), build_platform()) == 0);
}

TEST_CASE("config: diff IDs become chain IDs, index by index") {
  const std::string text = R"({"architecture":"arm64","os":"linux","variant":"v8","rootfs":)"
                           R"({"type":"layers","diff_ids":[")" +
                           digest_text("one") + R"(",")" + digest_text("two") + R"("]}})";
  const auto config = parse_image_config(text);
  REQUIRE(config);
  CHECK(config->platform == Platform{"linux", "arm64", "v8"});
  ImageManifest image;
  image.layers.resize(2);
  REQUIRE(add_config(*config, image));
  CHECK(image.layers[0].diff_id == sha256("one"));
  CHECK(image.layers[0].chain_id == sha256("one"));
  CHECK(image.layers[1].diff_id == sha256("two"));
  CHECK(to_string(image.layers[1].chain_id) ==
        "sha256:ee90d7132b9e9a049b7b0a88db345ca31fb5e8a74a5ee57210478a9a2522d499");
  image.layers.resize(3);
  CHECK(add_config(*config, image).error().message ==
        "the config names 2 layers, the manifest 3: no runtime unpacks that");
  ImageManifest empty;
  CHECK(add_config(*parse_image_config("{}"), empty).has_value());
}

TEST_CASE("config: refused") {
  for (const char* text : {"[]",
                           "x",
                           R"({"rootfs":{"diff_ids":{}}})",
                           R"({"rootfs":{"diff_ids":["sha256:1"]}})",
                           R"({"rootfs":{"diff_ids":[7]}})"}) {
    CAPTURE(text);
    CHECK(parse_image_config(text).error().kind == ErrorKind::InvalidArgument);
  }
}

}  // namespace imagefs_guard::manifest_test
