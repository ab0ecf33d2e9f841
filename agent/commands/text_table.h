#pragma once
/// Tables and sentences that fit a terminal. Pure; for the texts of `check` and `status`.

#include <string>
#include <vector>

namespace imagefs_guard {

struct TextColumn {
  const char* title;
  bool right = false;
};

/// Rows as wide as their widest cells; the first column gives way where there are too few columns:
/// its cells lose their beginning, since the end of an image's name says most.
class TextTable {
 public:
  explicit TextTable(std::vector<TextColumn> columns);

  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }

  /// 0 = as wide as it takes.
  [[nodiscard]] std::string print(int terminal_columns) const;

 private:
  [[nodiscard]] std::string print_row(const std::vector<std::string>& row,
                                      const std::vector<std::size_t>& widths) const;

  std::vector<TextColumn> columns_;
  std::vector<std::vector<std::string>> rows_;
};

/// Breaks at blanks; lines after the first are indented. A longer word stays whole.
[[nodiscard]] std::string wrap_text(const std::string& text, int columns);

}  // namespace imagefs_guard
