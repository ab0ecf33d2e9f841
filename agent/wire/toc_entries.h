#pragma once
/// Reads the JSON of a layer's table of contents (eStargz and zstd:chunked have the same) as it
/// comes, piece by piece, and adds up what its files will take on a disk. Keeps no document: a
/// table has hundreds of thousands of entries, and the agent has 10 MiB. Used by toc_reader; pure,
/// bounded.

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "agent/core/node_snapshot.h"
#include "agent/core/result.h"

namespace imagefs_guard {

constexpr std::int64_t kTocEntriesLimit = 2'000'000;

[[nodiscard]] Error invalid_toc(const std::string& what);

class TocEntries {
 public:
  /// Files are rounded up to blocks of the image filesystem.
  explicit TocEntries(std::int64_t block_bytes);

  /// The next piece, cut anywhere. After an error nothing more is read.
  [[nodiscard]] Result<void> feed(std::string_view json);

  /// A file that is unpacked beside what the table lists.
  void add_file(std::string_view name, std::int64_t bytes);

  /// The sum, once the JSON is complete. InvalidArgument: it is not, or no table at all.
  [[nodiscard]] Result<SizeFact> finish();

 private:
  enum class Expect { Value, ValueOrEnd, Key, KeyOrEnd, Colon, CommaOrEnd, Nothing };

  struct Entry {
    std::string type;
    std::string name;
    std::size_t link_bytes = 0;
    std::int64_t bytes = 0;
  };

  /// What a directory holds, in bytes of its own entries.
  struct Directory {
    std::int64_t ext4_bytes = 24;  // "." and ".."
    std::int64_t xfs_bytes = 64;
    std::int64_t xfs_short_bytes = 10;
  };

  [[nodiscard]] Result<void> structural(char c);
  [[nodiscard]] Result<void> open(char c);
  [[nodiscard]] Result<void> close(char c);
  std::size_t in_string(std::string_view json);
  void end_string();
  void append(std::string_view text);
  void append_code_point();
  [[nodiscard]] Result<void> end_scalar();
  [[nodiscard]] bool in_entry() const;
  void value_done();

  [[nodiscard]] Result<void> count(const Entry& entry);
  void add_directory(std::string_view path);
  void add_to_parent(std::string_view path);

  std::int64_t block_bytes_;
  // JSON
  std::vector<char> open_;  // '{' and '[' from the outside in
  Expect expect_ = Expect::Value;
  bool string_ = false;
  bool is_key_ = false;
  bool keep_ = false;  // the string's text is of interest
  bool escaped_ = false;
  int hex_left_ = 0;
  std::uint32_t hex_ = 0;
  std::string text_;
  std::string scalar_;
  std::string root_key_;
  std::string entry_key_;
  bool saw_entries_ = false;
  bool failed_ = false;
  // entries
  Entry entry_;
  std::int64_t entries_ = 0;
  SizeFact sum_;
  std::unordered_map<std::uint64_t, Directory> directories_;
  std::int64_t untracked_directories_ = 0;
};

}  // namespace imagefs_guard
