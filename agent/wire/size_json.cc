#include "agent/wire/size_json.h"

#include <charconv>
#include <nlohmann/json.hpp>

#include "agent/wire/json.h"
#include "agent/wire/json_text.h"

namespace imagefs_guard {

namespace {

using Json = nlohmann::json;

constexpr std::string_view kNodePrefix = "imagefs-guard-sizes-";
constexpr const char* kNodeKey = "sizes";
/// Of an object's name.
constexpr std::size_t kNameLimit = 253;
/// No layer is larger than this, or has more files.
constexpr std::int64_t kBytesLimit = std::int64_t{1} << 44;
constexpr std::int64_t kInodesLimit = std::int64_t{1} << 32;
/// One per node of the largest clusters.
constexpr std::size_t kListItemsMaximum = 20'000;
constexpr const char* kHexDigits = "0123456789abcdef";

const char* kind_text(FilesystemKind kind) {
  switch (kind) {
    case FilesystemKind::Xfs:
      return "xfs";
    case FilesystemKind::Ext4:
      return "ext4";
    case FilesystemKind::Other:
      return "other";
  }
  return "other";
}

std::optional<FilesystemKind> parse_kind(std::string_view text) {
  for (const FilesystemKind kind :
       {FilesystemKind::Xfs, FilesystemKind::Ext4, FilesystemKind::Other}) {
    if (text == kind_text(kind)) {
      return kind;
    }
  }
  return std::nullopt;
}

/// Cuts the next word off.
std::string_view next_word(std::string_view& line) {
  const std::size_t end = std::min(line.find(' '), line.size());
  const std::string_view word = line.substr(0, end);
  line.remove_prefix(std::min(end + 1, line.size()));
  return word;
}

std::optional<std::int64_t> parse_count(std::string_view word, std::int64_t limit) {
  std::int64_t value = -1;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  const bool whole = error == std::errc() && end == word.data() + word.size();
  return whole && value >= 0 && value <= limit ? std::optional(value) : std::nullopt;
}

std::optional<SizeRecord> parse_record(std::string_view line) {
  const std::optional<Digest> diff_id = parse_digest("sha256:" + std::string(next_word(line)));
  const std::optional<std::int64_t> bytes = parse_count(next_word(line), kBytesLimit);
  const std::optional<std::int64_t> inodes = parse_count(next_word(line), kInodesLimit);
  const std::optional<FilesystemKind> kind = parse_kind(next_word(line));
  if (!diff_id || !bytes || !inodes || !kind || !line.empty()) {
    return std::nullopt;
  }
  return SizeRecord{.diff_id = *diff_id, .bytes = *bytes, .inodes = *inodes, .measured_on = *kind};
}

std::string shard_key(std::size_t shard) {
  return std::string(1, kHexDigits[shard]);
}

Json map_of(const std::string& namespace_name, const std::string& name, const char* kind) {
  return Json{{"apiVersion", "v1"},
              {"kind", "ConfigMap"},
              {"metadata",
               {{"name", name},
                {"namespace", namespace_name},
                {"labels", {{"app.kubernetes.io/name", "imagefs-guard"}, {kSizesLabel, kind}}}}},
              {"data", Json::object()}};
}

}  // namespace

std::string node_sizes_name(const std::string& node) {
  std::string name = std::string(kNodePrefix) + node;
  return node.empty() || name.size() > kNameLimit ? std::string() : name;
}

std::string encode_size_records(const std::vector<SizeRecord>& records) {
  std::string text;
  for (const SizeRecord& record : records) {
    text += to_string(record.diff_id).substr(7) + " " + std::to_string(record.bytes) + " " +
            std::to_string(record.inodes) + " " + kind_text(record.measured_on) + "\n";
  }
  return text;
}

std::vector<SizeRecord> parse_size_records(std::string_view text, std::size_t limit) {
  std::vector<SizeRecord> records;
  while (!text.empty() && records.size() < limit) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    if (const auto record = parse_record(text.substr(0, end))) {
      records.push_back(*record);
    }
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return records;
}

Result<SizeMap> parse_size_map(std::string_view json) {
  const JsonDocument document = TRY(parse_kube_object(json));
  const JsonView metadata = document.root()["metadata"];
  const JsonView data = document.root()["data"];
  SizeMap map{.name = std::string(metadata["name"].text()),
              .resource_version = std::string(metadata["resourceVersion"].text()),
              .node = parse_size_records(data[kNodeKey].text(), kNodeSizesMaximum),
              .shards = {}};
  if (map.name.empty()) {
    return Error{ErrorKind::InvalidArgument, "a ConfigMap without metadata.name"};
  }
  for (std::size_t i = 0; i < kSizeShards; ++i) {
    for (const SizeRecord& record :
         parse_size_records(data[shard_key(i)].text(), kShardSizesMaximum)) {
      if (size_shard_of(record.diff_id) == i) {
        map.shards[i].push_back(record);
      }
    }
  }
  return map;
}

Result<ListMetadata> parse_size_versions(std::string_view json,
                                         std::vector<NamedVersion>& versions) {
  const JsonDocument document = TRY(parse_kube_object(json));
  const JsonView root = document.root();
  const JsonView items = root["items"];
  if (!root["kind"].text().ends_with("List") || (items && !items.is_array()) ||
      items.size() > kListItemsMaximum) {
    return Error{ErrorKind::InvalidArgument, "expected a list of ConfigMaps"};
  }
  for (std::size_t i = 0; i < items.size(); ++i) {
    const JsonView metadata = items.at(i)["metadata"];
    if (metadata["name"].text().starts_with(kNodePrefix)) {
      versions.push_back({.name = std::string(metadata["name"].text()),
                          .resource_version = std::string(metadata["resourceVersion"].text())});
    }
  }
  return ListMetadata{.resource_version = std::string(root["metadata"]["resourceVersion"].text()),
                      .continue_token = std::string(root["metadata"]["continue"].text())};
}

std::string node_sizes_body(const NodeSizesWrite& write) {
  Json map = map_of(write.namespace_name, node_sizes_name(write.node), "node");
  const Json owner = {
      {"apiVersion", "v1"}, {"kind", "Node"}, {"name", write.node}, {"uid", write.node_uid}};
  map["metadata"]["ownerReferences"] = Json::array({owner});
  map["data"][kNodeKey] = encode_size_records(write.records);
  return compact_text(map);
}

std::string merged_sizes_body(const std::string& namespace_name,
                              const SizeShards& shards,
                              unsigned which) {
  Json map = map_of(namespace_name, kMergedSizesName, "merged");
  for (std::size_t i = 0; i < kSizeShards; ++i) {
    if ((which >> i & 1U) != 0) {
      map["data"][shard_key(i)] = encode_size_records(shards[i]);
    }
  }
  return compact_text(map);
}

}  // namespace imagefs_guard
