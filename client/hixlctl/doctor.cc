// hixlctl doctor: whether this node has what the daemon needs, and what to do where it has not.
#include <dlfcn.h>

#include "absl/strings/str_cat.h"
#include "client/hixlctl/checks.h"
#include "client/hixlctl/command.h"
#include "client/hixlctl/table.h"

namespace hixld::hixlctl {
namespace {

// Of the daemon, how far it can be asked.
Finding CheckDaemon(const absl::StatusOr<hixl::v1::GetStatusResponse>& status) {
  if (status.ok()) {
    return {"daemon", Level::kGood,
            absl::StrCat("hixld ", status->version(), ", pid ", status->pid()), ""};
  }
  const std::string message(status.status().message());
  switch (status.status().code()) {
    case absl::StatusCode::kUnavailable:
      return {"daemon", Level::kNote, message, ""};
    case absl::StatusCode::kPermissionDenied:
      return {"daemon", Level::kProblem, message, "see socket"};
    default:
      return {"daemon", Level::kProblem, message,
              "see the daemon's log: journalctl -u hixld; restart it if it does not answer at all"};
  }
}

std::string FindingsText(const std::vector<Finding>& findings) {
  Table table({{"CHECK"}, {""}, {"FOUND"}});
  std::string advice;
  for (const Finding& finding : findings) {
    table.AddRow({finding.check, LevelWord(finding.level), finding.found});
    if (finding.advice.empty()) continue;
    absl::StrAppend(&advice, "  ", Printable(finding.check), ": ", Printable(finding.advice), "\n");
  }
  return absl::StrCat(table.ToString(""), advice.empty() ? "" : "\nWhat to do\n", advice);
}

bool HasVerbsLibrary() {
  void* const handle = dlopen("libibverbs.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (handle == nullptr) return false;
  dlclose(handle);
  return true;
}

}  // namespace

Action PrepareDoctor(CLI::App&) {
  return [](AdminClient& client) -> absl::StatusOr<Output> {
    const auto status = client.GetStatus();
    Host host;
    host.daemon_pid = status.ok() ? static_cast<pid_t>(status->pid()) : 0;
    host.socket_path = client.socket_path();
    if (status.ok()) host.congestion_control = status->tcp_congestion_control();
    host.has_verbs_library = HasVerbsLibrary;
    std::vector<Finding> findings = {CheckDaemon(status)};
    for (Finding& finding : Examine(host)) findings.push_back(std::move(finding));
    Output output;
    output.text = FindingsText(findings);
    output.rows_name = "findings";
    for (const Finding& finding : findings) {
      output.rows.push_back({{"check", finding.check},
                             {"level", LevelWord(finding.level)},
                             {"found", finding.found},
                             {"advice", finding.advice}});
      if (finding.level == Level::kProblem) output.exit_code = 1;
    }
    return output;
  };
}

}  // namespace hixld::hixlctl
