// Aligned columns for people.
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace hixld::hixlctl {

enum class Align { kLeft, kRight };

struct TableColumn {
  std::string title;
  Align align = Align::kLeft;
};

class Table {
 public:
  explicit Table(std::vector<TableColumn> columns) : columns_(std::move(columns)) {}

  // One cell per column. Cells may come from clients: characters that a terminal would act on
  // are replaced.
  void AddRow(std::vector<std::string> cells);
  bool empty() const { return rows_.empty(); }

  // A line of titles and a line per row; `when_empty` and a newline when there are no rows.
  std::string ToString(absl::string_view when_empty) const;

 private:
  std::vector<TableColumn> columns_;
  std::vector<std::vector<std::string>> rows_;
};

// Replaces control characters and malformed UTF-8 with '?'.
std::string Printable(absl::string_view text);

}  // namespace hixld::hixlctl
