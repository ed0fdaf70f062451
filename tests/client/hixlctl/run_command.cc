#include "tests/client/hixlctl/run_command.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

namespace hixld::testing {
namespace {

std::vector<char*> Pointers(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

std::string ReadFromStart(int fd) {
  std::string text;
  char buffer[4096];
  ssize_t bytes;
  off_t offset = 0;
  while ((bytes = pread(fd, buffer, sizeof(buffer), offset)) > 0) {
    text.append(buffer, static_cast<size_t>(bytes));
    offset += bytes;
  }
  return text;
}

}  // namespace

RunningCommand::RunningCommand(const std::vector<std::string>& command,
                               const Environment& environment)
    : err_(memfd_create("stderr", MFD_CLOEXEC)) {
  int pipes[2];
  if (pipe2(pipes, O_CLOEXEC) != 0) std::abort();
  out_ = UniqueFd(pipes[0]);
  const UniqueFd write_end(pipes[1]);

  std::vector<std::string> arguments = command;
  std::vector<std::string> variables = {std::string("PATH=") + std::getenv("PATH")};
  for (const auto& [name, value] : environment) variables.push_back(name + "=" + value);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, write_end.get(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, err_.get(), STDERR_FILENO);
  const int error = posix_spawnp(&pid_, arguments.front().c_str(), &actions, nullptr,
                                 Pointers(arguments).data(), Pointers(variables).data());
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) std::abort();
}

RunningCommand::~RunningCommand() {
  if (pid_ < 0) return;
  Kill(SIGKILL);
  Wait();
}

std::string RunningCommand::ReadLines(size_t lines) {
  char buffer[4096];
  while (static_cast<size_t>(std::count(text_.begin(), text_.end(), '\n')) < lines) {
    const ssize_t bytes = read(out_.get(), buffer, sizeof(buffer));
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes <= 0) break;
    text_.append(buffer, static_cast<size_t>(bytes));
  }
  return text_;
}

CommandResult RunningCommand::Wait() {
  CommandResult result;
  result.out = ReadLines(SIZE_MAX);
  int status = 0;
  while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  result.err = ReadFromStart(err_.get());
  return result;
}

void RunningCommand::Kill(int signal) { kill(pid_, signal); }

CommandResult RunCommand(const std::vector<std::string>& command, const Environment& environment) {
  return RunningCommand(command, environment).Wait();
}

}  // namespace hixld::testing
