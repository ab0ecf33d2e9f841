#include "agent/wire/toc_entries.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "agent/wire/tar_header.h"

namespace imagefs_guard {

namespace {

constexpr std::size_t kDepthLimit = 32;
/// PATH_MAX is 4096; more of a name is read over.
constexpr std::size_t kEntryTextLimit = 4'096;
constexpr std::size_t kScalarLimit = 64;
/// What one entry may claim to hold; sums of two million of them stay far from overflow.
constexpr std::int64_t kEntryFileLimit = std::int64_t{1} << 40;
constexpr std::int64_t kSumLimit = std::int64_t{1} << 50;
/// Beyond this, directories are counted with one block each: 4 MiB are enough for their names.
constexpr std::size_t kDirectoriesLimit = 50'000;

// A symlink of up to this many bytes lies in its inode.
constexpr std::size_t kShortLinkBytes = 59;
// ext4: a directory entry is 8 bytes and its name, in fours.
constexpr std::int64_t kExt4EntryBytes = 8;
// XFS: an inode of 512 bytes has room for 336 of a small directory; each entry takes 8 and its name
// there, in a block 12 and its name, in eights, and 8 in the index.
constexpr std::int64_t kXfsShortLimit = 336;
constexpr std::int64_t kXfsShortEntryBytes = 8;
constexpr std::int64_t kXfsEntryBytes = 12;
constexpr std::int64_t kXfsIndexBytes = 8;
constexpr std::int64_t kDirectoryBlock = 4'096;

bool is_space(char c) {
  return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

int hex_value(char c) {
  if (c >= '0' && c <= '9') {
    return c - '0';
  }
  if (c >= 'a' && c <= 'f') {
    return c - 'a' + 10;
  }
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/// FNV-1a: names a directory by its path without keeping the path.
std::uint64_t hash_of(std::string_view path) {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const char c : path) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  }
  return hash;
}

/// "./usr/lib/" and "/usr/lib" are "usr/lib"; the root is "".
std::string_view plain_path(std::string_view path) {
  for (;;) {
    if (path.starts_with("./")) {
      path.remove_prefix(2);
    } else if (path.starts_with('/')) {
      path.remove_prefix(1);
    } else {
      break;
    }
  }
  while (path.ends_with('/')) {
    path.remove_suffix(1);
  }
  return path == "." ? std::string_view() : path;
}

std::string_view parent_of(std::string_view path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? std::string_view() : plain_path(path.substr(0, slash));
}

std::string_view base_of(std::string_view path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? path : path.substr(slash + 1);
}

/// Directories that outgrow a block are split in halves again and again, so they are never full.
std::int64_t directory_blocks(std::int64_t bytes) {
  if (bytes <= kDirectoryBlock) {
    return kDirectoryBlock;
  }
  return round_up(bytes + bytes / 3, kDirectoryBlock) + kDirectoryBlock;
}

}  // namespace

Error invalid_toc(const std::string& what) {
  return Error{ErrorKind::InvalidArgument, "table of contents: " + what};
}

TocEntries::TocEntries(std::int64_t block_bytes) : block_bytes_(block_bytes) {
  sum_.source = SizeSource::Toc;
  sum_.inodes = 0;
  add_directory("");  // the layer's own root
}

Result<void> TocEntries::feed(std::string_view json) {
  if (failed_) {
    return invalid_toc("unreadable");
  }
  failed_ = true;
  std::size_t at = 0;
  while (at < json.size()) {
    if (string_) {
      at += in_string(json.substr(at));
      continue;
    }
    const char c = json[at];
    const bool scalar = !is_space(c) && c != ',' && c != ':' && c != '"' && c != '{' && c != '}' &&
                        c != '[' && c != ']';
    if (!scalar && !scalar_.empty()) {
      TRY(end_scalar());
    }
    ++at;
    if (is_space(c)) {
      continue;
    }
    if (!scalar) {
      TRY(structural(c));
    } else if (scalar_.size() < kScalarLimit) {
      scalar_ += c;
    } else {
      return invalid_toc("a number of more than 64 digits");
    }
  }
  failed_ = false;
  return {};
}

bool TocEntries::in_entry() const {
  return open_.size() == 3 && open_[1] == '[' && open_[2] == '{' && root_key_ == "entries";
}

Result<void> TocEntries::structural(char c) {
  const bool wants_value = expect_ == Expect::Value || expect_ == Expect::ValueOrEnd;
  switch (c) {
    case '{':
    case '[':
      return wants_value ? open(c) : invalid_toc("a value out of place");
    case '}':
    case ']':
      return close(c);
    case ':':
      if (expect_ != Expect::Colon) {
        return invalid_toc("a colon out of place");
      }
      expect_ = Expect::Value;
      return {};
    case ',':
      if (expect_ != Expect::CommaOrEnd) {
        return invalid_toc("a comma out of place");
      }
      expect_ = open_.back() == '{' ? Expect::Key : Expect::Value;
      return {};
    default:  // a quote
      is_key_ = expect_ == Expect::Key || expect_ == Expect::KeyOrEnd;
      if (!is_key_ && !wants_value) {
        return invalid_toc("a string out of place");
      }
      string_ = true;
      text_.clear();
      keep_ = is_key_ ? open_.size() == 1 || in_entry()
                      : in_entry() && (entry_key_ == "type" || entry_key_ == "name" ||
                                       entry_key_ == "linkName");
      return {};
  }
}

Result<void> TocEntries::open(char c) {
  if (open_.size() >= kDepthLimit) {
    return invalid_toc("nested too deep");
  }
  if (open_.empty() && c != '{') {
    return invalid_toc("not an object");
  }
  open_.push_back(c);
  expect_ = c == '{' ? Expect::KeyOrEnd : Expect::ValueOrEnd;
  if (in_entry()) {
    entry_ = {};
  } else if (open_.size() == 2 && c == '[' && root_key_ == "entries") {
    if (saw_entries_) {
      return invalid_toc("two lists of entries");
    }
    saw_entries_ = true;
  }
  return {};
}

Result<void> TocEntries::close(char c) {
  const bool object = c == '}';
  const bool may_end =
      expect_ == Expect::CommaOrEnd || expect_ == (object ? Expect::KeyOrEnd : Expect::ValueOrEnd);
  if (open_.empty() || open_.back() != (object ? '{' : '[') || !may_end) {
    return invalid_toc("a bracket out of place");
  }
  if (in_entry()) {
    TRY(count(entry_));
  }
  open_.pop_back();
  value_done();
  return {};
}

void TocEntries::value_done() {
  expect_ = open_.empty() ? Expect::Nothing : Expect::CommaOrEnd;
}

/// Up to the closing quote, or the end of the piece; returns how much was read.
std::size_t TocEntries::in_string(std::string_view json) {
  std::size_t at = 0;
  while (at < json.size()) {
    const char c = json[at];
    if (hex_left_ > 0) {
      ++at;
      hex_ = hex_ * 16 + static_cast<std::uint32_t>(std::max(hex_value(c), 0));
      if (--hex_left_ == 0) {
        append_code_point();
      }
    } else if (escaped_) {
      ++at;
      escaped_ = false;
      if (c == 'u') {
        hex_left_ = 4;
        hex_ = 0;
      } else {
        append(json.substr(at - 1, 1));  // \n and the like: one byte, whichever
      }
    } else if (c == '\\') {
      ++at;
      escaped_ = true;
    } else if (c == '"') {
      end_string();
      return at + 1;
    } else {
      const std::size_t end = std::min(json.find_first_of("\"\\", at), json.size());
      append(json.substr(at, end - at));
      at = end;
    }
  }
  return at;
}

void TocEntries::append(std::string_view text) {
  if (keep_) {
    text_.append(text.substr(0, kEntryTextLimit - std::min(text_.size(), kEntryTextLimit)));
  }
}

/// As UTF-8: halves of surrogate pairs become three bytes each, which only makes a name longer.
void TocEntries::append_code_point() {
  const auto byte = [](std::uint32_t value) { return static_cast<char>(value); };
  if (hex_ < 0x80) {
    append(std::string{byte(hex_)});
  } else if (hex_ < 0x800) {
    append(std::string{byte(0xc0U | hex_ >> 6U), byte(0x80U | (hex_ & 0x3fU))});
  } else {
    append(std::string{byte(0xe0U | hex_ >> 12U),
                       byte(0x80U | (hex_ >> 6U & 0x3fU)),
                       byte(0x80U | (hex_ & 0x3fU))});
  }
}

void TocEntries::end_string() {
  string_ = false;
  if (is_key_) {
    (open_.size() == 1 ? root_key_ : entry_key_) = keep_ ? text_ : std::string();
    expect_ = Expect::Colon;
    return;
  }
  if (keep_ && entry_key_ == "type") {
    entry_.type = text_;
  } else if (keep_ && entry_key_ == "name") {
    entry_.name = text_;
  } else if (keep_) {
    entry_.link_bytes = text_.size();
  }
  value_done();
}

/// A number, true, false or null.
Result<void> TocEntries::end_scalar() {
  if (expect_ != Expect::Value && expect_ != Expect::ValueOrEnd) {
    return invalid_toc("a value out of place");
  }
  const std::string scalar = std::exchange(scalar_, {});
  if (open_.empty()) {
    return invalid_toc("not an object");
  }
  if (in_entry() && entry_key_ == "size") {
    const char* const end = scalar.data() + scalar.size();
    const auto [at, error] = std::from_chars(scalar.data(), end, entry_.bytes);
    if (error != std::errc() || at != end || entry_.bytes < 0 || entry_.bytes > kEntryFileLimit) {
      return invalid_toc("a file of " + scalar + " bytes");
    }
  }
  value_done();
  return {};
}

Result<void> TocEntries::count(const Entry& entry) {
  if (++entries_ > kTocEntriesLimit) {
    return invalid_toc("more than " + std::to_string(kTocEntriesLimit) + " entries");
  }
  if (entry.type == "chunk") {
    return {};  // a further part of the file before it
  }
  constexpr std::int64_t kHeader = kTarBlockBytes;
  const std::string_view path = plain_path(entry.name);
  sum_.toc_tar_bytes += kHeader;
  if (entry.type == "dir") {
    add_directory(path);
    return {};
  }
  if (base_of(path) == ".wh..wh..opq") {
    return {};  // becomes an attribute of its directory
  }
  if (entry.type == "reg") {
    add_file(path, entry.bytes);
    sum_.toc_tar_bytes -= kHeader;  // add_file() has counted it too
    return sum_.bytes <= kSumLimit ? Result<void>() : invalid_toc("more bytes than any disk has");
  }
  if (entry.type == "symlink") {
    sum_.ext4_directory_bytes += entry.link_bytes > kShortLinkBytes ? block_bytes_ : 0;
  } else if (entry.type != "char" && entry.type != "block" && entry.type != "fifo" &&
             entry.type != "hardlink") {
    return invalid_toc("an entry of type \"" + entry.type.substr(0, kScalarLimit) + "\"");
  }
  sum_.inodes += entry.type == "hardlink" ? 0 : 1;
  add_to_parent(path);
  return {};
}

void TocEntries::add_file(std::string_view name, std::int64_t bytes) {
  constexpr std::int64_t kBlock = kTarBlockBytes;
  sum_.bytes += round_up(bytes, block_bytes_);
  sum_.toc_tar_bytes += kBlock + round_up(bytes, kBlock);
  ++sum_.inodes;
  add_to_parent(plain_path(name));
}

/// Also what the tar leaves out: the runtime makes the directories that a path needs.
void TocEntries::add_directory(std::string_view path) {
  const std::uint64_t hash = hash_of(path);
  if (directories_.contains(hash)) {
    return;
  }
  ++sum_.inodes;
  if (directories_.size() >= kDirectoriesLimit) {
    ++untracked_directories_;
    return;
  }
  directories_.emplace(hash, Directory{});
  if (!path.empty()) {
    add_to_parent(path);
  }
}

void TocEntries::add_to_parent(std::string_view path) {
  const std::string_view parent = parent_of(path);
  const auto name_bytes = static_cast<std::int64_t>(base_of(path).size());
  auto found = directories_.find(hash_of(parent));
  if (found == directories_.end()) {
    if (directories_.size() >= kDirectoriesLimit) {
      return;
    }
    add_directory(parent);
    found = directories_.find(hash_of(parent));
  }
  found->second.ext4_bytes += round_up(kExt4EntryBytes + name_bytes, 4);
  found->second.xfs_bytes += round_up(kXfsEntryBytes + name_bytes, 8) + kXfsIndexBytes;
  found->second.xfs_short_bytes += kXfsShortEntryBytes + name_bytes;
}

Result<SizeFact> TocEntries::finish() {
  if (failed_ || string_ || !scalar_.empty() || expect_ != Expect::Nothing) {
    return invalid_toc("cut short");
  }
  if (!saw_entries_) {
    return invalid_toc("no entries");
  }
  SizeFact fact = sum_;
  fact.ext4_directory_bytes += untracked_directories_ * kDirectoryBlock;
  fact.xfs_directory_bytes += untracked_directories_ * kDirectoryBlock;
  for (const auto& [hash, directory] : directories_) {
    fact.ext4_directory_bytes += directory_blocks(directory.ext4_bytes);
    if (directory.xfs_short_bytes > kXfsShortLimit) {
      fact.xfs_directory_bytes += directory_blocks(directory.xfs_bytes);
    }
  }
  return fact;
}

}  // namespace imagefs_guard
