#include "client/hixlctl/table.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"

namespace hixld::hixlctl {
namespace {

// Bytes of the UTF-8 character that starts `text`; 0 when it is malformed.
size_t CharacterBytes(absl::string_view text) {
  const auto lead = static_cast<unsigned char>(text.front());
  size_t bytes = 0;
  if (lead < 0x80) bytes = 1;
  if (lead >= 0xc2 && lead < 0xe0) bytes = 2;
  if (lead >= 0xe0 && lead < 0xf0) bytes = 3;
  if (lead >= 0xf0 && lead < 0xf5) bytes = 4;
  if (bytes == 0 || bytes > text.size()) return 0;
  for (size_t i = 1; i < bytes; ++i) {
    if ((static_cast<unsigned char>(text[i]) & 0xc0) != 0x80) return 0;
  }
  return bytes;
}

// C0 and C1 controls and DEL.
bool IsControl(absl::string_view character) {
  const auto first = static_cast<unsigned char>(character.front());
  if (character.size() == 1) return first < 0x20 || first == 0x7f;
  return first == 0xc2 && static_cast<unsigned char>(character[1]) < 0xa0;
}

// Characters, not bytes; close enough for columns.
size_t Width(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  }));
}

}  // namespace

std::string Printable(absl::string_view text) {
  std::string out;
  while (!text.empty()) {
    const size_t bytes = CharacterBytes(text);
    if (bytes == 0 || IsControl(text.substr(0, bytes))) {
      out += '?';
    } else {
      absl::StrAppend(&out, text.substr(0, bytes));
    }
    text.remove_prefix(std::max<size_t>(bytes, 1));
  }
  return out;
}

void Table::AddRow(std::vector<std::string> cells) {
  cells.resize(columns_.size());
  for (std::string& cell : cells) cell = cell.empty() ? "-" : Printable(cell);
  rows_.push_back(std::move(cells));
}

std::string Table::ToString(absl::string_view when_empty) const {
  if (rows_.empty()) return absl::StrCat(when_empty, "\n");
  std::vector<size_t> widths;
  for (size_t i = 0; i < columns_.size(); ++i) {
    widths.push_back(Width(columns_[i].title));
    for (const auto& row : rows_) widths[i] = std::max(widths[i], Width(row[i]));
  }
  std::string out;
  const auto append_line = [&](const auto& cell_at) {
    std::string line;
    for (size_t i = 0; i < columns_.size(); ++i) {
      const std::string& cell = cell_at(i);
      const std::string padding(widths[i] - Width(cell), ' ');
      const bool right = columns_[i].align == Align::kRight;
      absl::StrAppend(&line, i == 0 ? "" : "  ", right ? padding : "", cell, right ? "" : padding);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    absl::StrAppend(&out, line, "\n");
  };
  append_line([&](size_t i) -> const std::string& { return columns_[i].title; });
  for (const auto& row : rows_) {
    append_line([&](size_t i) -> const std::string& { return row[i]; });
  }
  return out;
}

}  // namespace hixld::hixlctl
