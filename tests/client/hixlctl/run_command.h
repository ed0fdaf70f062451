// Runs a program and catches what it prints.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

#include "proto/base/fd.h"

namespace hixld::testing {

struct CommandResult {
  int exit_code = -1;  // 128 + signal when it was killed
  std::string out;
  std::string err;
};

using Environment = std::map<std::string, std::string>;

// A running program. Its environment is `environment` and PATH alone.
class RunningCommand {
 public:
  RunningCommand(const std::vector<std::string>& command, const Environment& environment);
  ~RunningCommand();

  // Reads standard output until it holds `lines` newlines or ends, and returns all of it so far.
  std::string ReadLines(size_t lines);
  // Reads the rest and waits for the end.
  CommandResult Wait();
  void Kill(int signal);

 private:
  pid_t pid_ = -1;
  UniqueFd out_;
  UniqueFd err_;  // an unlinked file, read at the end
  std::string text_;
};

CommandResult RunCommand(const std::vector<std::string>& command,
                         const Environment& environment = {});

}  // namespace hixld::testing
