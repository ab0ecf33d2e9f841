#pragma once
/// The parsers and decoders that get bytes from strangers, a function each: it parses its input in
/// every way that the agent does and VERIFYs what must hold whatever the bytes are. Never fails
/// otherwise: a crash or a sanitizer's report is the finding. Called by libfuzzer.cc with made-up
/// input and by play_corpus.cc with the committed one.

#include <string_view>

namespace imagefs_guard::fuzz {

void containerd(std::string_view input);
void cri(std::string_view input);
void drain_records(std::string_view input);
void grpc_frame(std::string_view input);
void json(std::string_view input);
void kube(std::string_view input);
void kube_patch(std::string_view input);
void kubelet_config(std::string_view input);
void manifest(std::string_view input);
void policy(std::string_view input);
void quantity(std::string_view input);
void redact_reply(std::string_view input);
void reference(std::string_view input);
void registry_json(std::string_view input);
void size_records(std::string_view input);
void tar(std::string_view input);
void toc(std::string_view input);
void trace(std::string_view input);
void url(std::string_view input);
void watch(std::string_view input);

/// What an input of the target looks like: which mutator knows its structure.
enum class Shape { Text, JsonLines, Protobuf, GrpcFrames, Bytes };

struct Target {
  const char* name;  // also of its folder in corpus/
  void (*run)(std::string_view input);
  Shape shape;
};

/// In the order of their names.
inline constexpr Target kTargets[] = {
    {"containerd", containerd, Shape::Protobuf},
    {"cri", cri, Shape::Protobuf},
    {"drain_records", drain_records, Shape::JsonLines},
    {"grpc_frame", grpc_frame, Shape::GrpcFrames},
    {"json", json, Shape::JsonLines},
    {"kube", kube, Shape::JsonLines},
    {"kube_patch", kube_patch, Shape::JsonLines},
    {"kubelet_config", kubelet_config, Shape::JsonLines},
    {"manifest", manifest, Shape::JsonLines},
    {"policy", policy, Shape::Text},
    {"quantity", quantity, Shape::Text},
    {"redact_reply", redact_reply, Shape::Text},
    {"reference", reference, Shape::Text},
    {"registry_json", registry_json, Shape::JsonLines},
    {"size_records", size_records, Shape::Text},
    {"tar", tar, Shape::Bytes},
    {"toc", toc, Shape::JsonLines},
    {"trace", trace, Shape::JsonLines},
    {"url", url, Shape::Text},
    {"watch", watch, Shape::JsonLines},
};

}  // namespace imagefs_guard::fuzz
