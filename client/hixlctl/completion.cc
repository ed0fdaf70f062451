// hixlctl completion: a script that completes commands and options in bash, made from the parser
// itself, so that it knows what the parser knows.
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "client/hixlctl/command.h"

namespace hixld::hixlctl {
namespace {

constexpr char kScript[] =
    R"(# bash completion for hixlctl; use it with: source <(hixlctl completion)
_hixlctl() {
  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]} word command=
  for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    case $word in @ALTERNATIVES@) command=$word ;; esac
  done
  COMPREPLY=()
  case $previous in
    --socket) mapfile -t COMPREPLY < <(compgen -f -- "$current"); return ;;
    --timeout|--watch|--engine) return ;;
  esac
  local words="@COMMON@"
  case $command in
    '') words+=" @COMMANDS@" ;;
@CASES@  esac
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
}
complete -F _hixlctl hixlctl
)";

std::vector<std::string> OptionNames(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

std::string Script(const CLI::App& root) {
  std::vector<std::string> commands;
  std::string cases;
  for (const CLI::App* sub : root.get_subcommands([](const CLI::App*) { return true; })) {
    commands.push_back(sub->get_name());
    absl::StrAppend(&cases, "    ", sub->get_name(), ") words+=\" ",
                    absl::StrJoin(OptionNames(*sub), " "), "\" ;;\n");
  }
  return absl::StrReplaceAll(kScript, {{"@ALTERNATIVES@", absl::StrJoin(commands, "|")},
                                       {"@COMMANDS@", absl::StrJoin(commands, " ")},
                                       {"@COMMON@", absl::StrJoin(OptionNames(root), " ")},
                                       {"@CASES@", cases}});
}

}  // namespace

Action PrepareCompletion(CLI::App& app) {
  return [&app](AdminClient&) -> absl::StatusOr<Output> {
    std::string script = Script(*app.get_parent());
    return Output{.text = script, .words = {{"bash", script}}, .message = nullptr, .json_name = ""};
  };
}

}  // namespace hixld::hixlctl
