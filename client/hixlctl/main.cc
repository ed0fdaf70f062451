// hixlctl: shows what a node's daemon holds and does.
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <iostream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client/hixlctl/command.h"
#include "client/hixlctl/run.h"
#include "proto/base/socket_path.h"
#include "proto/base/version.h"

namespace hixld::hixlctl {
namespace {

constexpr Command kCommands[] = {
    {"status", "The daemon at a glance", true, &PrepareStatus},
    {"sessions", "Client processes", true, &PrepareSessions},
    {"engines", "Engines and their channels", true, &PrepareEngines},
    {"regions", "Registered memory", true, &PrepareRegions},
    {"links", "Connections to other daemons and their lanes", true, &PrepareLinks},
    {"transfers", "Transfers under way, and the last that failed", true, &PrepareTransfers},
    {"devices", "Accelerators", true, &PrepareDevices},
    {"pools", "Memory pools of the daemon", true, &PreparePools},
    {"health", "Whether the daemon serves; exit code 0 if so", true, &PrepareHealth},
    {"doctor", "What this node lacks, and what to do; exit code 0 if nothing", true,
     &PrepareDoctor},
    {"version", "Releases of hixlctl and of the daemon", false, &PrepareVersion},
    {"completion", "A script for bash: source <(hixlctl completion)", false, &PrepareCompletion},
};

constexpr char kFooter[] =
    "Exit codes: 0 good, 1 the daemon answered with an error or not in time, 2 wrong usage,\n"
    "3 no daemon, 4 no permission. See docs/hixlctl.md.";

constexpr double kMinSeconds = 0.1;
constexpr double kMaxSeconds = 86'400;

// CLI::Range takes "nan", which is neither below nor above anything.
CLI::Validator SecondsInRange() {
  return CLI::Validator(
      [](std::string& text) -> std::string {
        double seconds = 0;
        if (absl::SimpleAtod(text, &seconds) && seconds >= kMinSeconds && seconds <= kMaxSeconds) {
          return "";
        }
        return absl::StrCat(text, " is not in ", kMinSeconds, "..", kMaxSeconds);
      },
      absl::StrCat("SECONDS in [", kMinSeconds, " - ", kMaxSeconds, "]"));
}

std::chrono::milliseconds Millis(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
}

// gRPC takes a relative path for another kind of address.
std::string Absolute(const std::string& path) {
  char directory[PATH_MAX];
  if (path.empty() || path.front() == '/') return path;
  if (realpath(".", directory) == nullptr) return path;
  return absl::StrCat(directory, "/", path);
}

struct Arguments {
  std::string socket;
  double timeout = 5;
  double watch = 0;
  bool json = false;
};

void AddCommonOptions(CLI::App& app, Arguments* arguments) {
  app.add_option("--socket", arguments->socket,
                 "The daemon's socket; else $HIXLD_SOCKET, else the system service's, else this "
                 "user's private daemon's")
      ->check([](const std::string& path) { return std::string(path.empty() ? "is empty" : ""); })
      ->type_name("PATH");
  app.add_option("--timeout", arguments->timeout, "How long to wait for an answer (5)")
      ->check(SecondsInRange())
      ->type_name("SECONDS");
  app.add_flag("--json", arguments->json, "Print JSON instead of tables");
}

// CLI11 says only that a command is missing.
int UnknownCommand(const std::string& word) {
  std::string allowed;
  for (const Command& command : kCommands) {
    absl::StrAppend(&allowed, allowed.empty() ? "" : " | ", command.name);
  }
  std::cerr << "hixlctl: \"" << word << "\" is not a command (allowed: " << allowed << ")\n";
  return kExitUsage;
}

int Main(int argc, char** argv) {
  CLI::App app("Shows what the hixld daemon of this node holds and does.", "hixlctl");
  Arguments arguments;
  AddCommonOptions(app, &arguments);
  app.set_version_flag("--version", std::string("hixlctl ") + kVersion);
  app.require_subcommand(1);
  app.footer(kFooter);

  Action action;
  for (const Command& command : kCommands) {
    CLI::App* const sub = app.add_subcommand(command.name, command.help);
    // Common options may stand before or after the subcommand.
    sub->fallthrough();
    if (command.watchable) {
      sub->add_option("--watch", arguments.watch, "Ask again every so many seconds")
          ->check(SecondsInRange())
          ->type_name("SECONDS");
    }
    const Action prepared = command.prepare(*sub);
    sub->callback([&action, prepared] { action = prepared; });
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (!app.remaining().empty() && app.get_subcommands().empty()) {
      return UnknownCommand(app.remaining().front());
    }
    // Help and version are "errors" with code 0.
    return app.exit(error, std::cout, std::cerr) == 0 ? kExitOk : kExitUsage;
  }
  RunOptions options;
  options.socket_path = arguments.socket.empty() ? DefaultSocketPath() : arguments.socket;
  options.socket_path = Absolute(options.socket_path);
  options.json = arguments.json;
  options.timeout = Millis(arguments.timeout);
  options.watch = Millis(arguments.watch);
  options.title = absl::StrCat("hixlctl ", app.get_subcommands().front()->get_name());
  return Run(action, options);
}

}  // namespace
}  // namespace hixld::hixlctl

int main(int argc, char** argv) { return hixld::hixlctl::Main(argc, argv); }
