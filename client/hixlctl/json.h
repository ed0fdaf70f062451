// Answers as JSON, with the names of the proto files; documented in docs/hixlctl.md.
#pragma once

#include <string>

#include "client/hixlctl/command.h"

namespace hixld::hixlctl {

// The version of the documents; grows when a name changes or goes away, not when one is added.
constexpr int kJsonVersion = 1;

// One document: {"version": 1, ...}. `pretty`: indented over several lines, else one line.
std::string ToJson(const Output& output, bool pretty);

}  // namespace hixld::hixlctl
