// untested: check_text_test.cc and status_text_test.cc have its cases.
#include "agent/commands/text_table.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace imagefs_guard {

namespace {

constexpr std::size_t kGap = 2;
/// Narrower than this a name says nothing any more: the table becomes wider than the terminal.
constexpr std::size_t kNameColumnsMinimum = 16;

/// Columns that text takes: one a character, which is right for what is printed here.
std::size_t width_of(const std::string& text) {
  return static_cast<std::size_t>(std::ranges::count_if(
      text, [](char c) { return (static_cast<unsigned char>(c) & 0xc0U) != 0x80U; }));
}

void fit(std::vector<std::size_t>& widths, int terminal_columns) {
  if (terminal_columns <= 0) {
    return;
  }
  std::size_t others = 0;
  for (std::size_t i = 1; i < widths.size(); ++i) {
    others += widths[i] + kGap;
  }
  const auto room = static_cast<std::size_t>(terminal_columns);
  const std::size_t left = room > others ? room - others : 0;
  widths[0] = std::min(widths[0], std::max(left, kNameColumnsMinimum));
}

/// The end of a name says most: "…/flows/etl:v1".
std::string cut_left(const std::string& text, std::size_t width) {
  std::size_t excess = width_of(text);
  if (excess <= width) {
    return text;
  }
  std::size_t at = 0;
  while (excess >= width && at < text.size()) {
    ++at;
    while (at < text.size() && (static_cast<unsigned char>(text[at]) & 0xc0U) == 0x80U) {
      ++at;
    }
    --excess;
  }
  return "…" + text.substr(at);
}

}  // namespace

TextTable::TextTable(std::vector<TextColumn> columns) : columns_(std::move(columns)) {
  std::vector<std::string> titles;
  for (const TextColumn& column : columns_) {
    titles.emplace_back(column.title);
  }
  rows_.push_back(std::move(titles));
}

std::string TextTable::print(int terminal_columns) const {
  std::vector<std::size_t> widths(columns_.size());
  for (const auto& row : rows_) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], width_of(row[i]));
    }
  }
  fit(widths, terminal_columns);
  std::string text;
  for (const auto& row : rows_) {
    text += print_row(row, widths);
  }
  return text;
}

std::string TextTable::print_row(const std::vector<std::string>& row,
                                 const std::vector<std::size_t>& widths) const {
  std::string line;
  for (std::size_t i = 0; i < row.size(); ++i) {
    const std::string cell = i == 0 ? cut_left(row[i], widths[i]) : row[i];
    const std::string padding(widths[i] - std::min(widths[i], width_of(cell)), ' ');
    line += columns_[i].right ? padding + cell : cell + padding;
    line += std::string(kGap, ' ');
  }
  line.erase(line.find_last_not_of(' ') + 1);
  return line + "\n";
}

std::string wrap_text(const std::string& text, int columns) {
  constexpr std::size_t kIndent = 2;
  if (columns <= 0) {
    return text + "\n";
  }
  std::string out;
  std::string line;
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    const std::string word = text.substr(at, end - at);
    if (!line.empty() && width_of(line) + 1 + width_of(word) > static_cast<std::size_t>(columns)) {
      out += line + "\n";
      line = std::string(kIndent, ' ') + word;
    } else {
      line += (line.empty() ? "" : " ") + word;
    }
    at = end + 1;
  }
  return out + line + "\n";
}

}  // namespace imagefs_guard
