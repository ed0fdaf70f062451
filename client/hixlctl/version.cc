// hixlctl version: the releases of this command and of the daemon, if one runs.
#include "proto/base/version.h"

#include "absl/strings/str_cat.h"
#include "client/hixlctl/command.h"
#include "client/hixlctl/table.h"

namespace hixld::hixlctl {

Action PrepareVersion(CLI::App&) {
  return [](AdminClient& client) -> absl::StatusOr<Output> {
    const auto status = client.GetStatus();
    // No daemon is no failure here; one that does not answer is.
    if (!status.ok() && status.status().code() != absl::StatusCode::kUnavailable) {
      return status.status();
    }
    const std::string daemon = status.ok() ? status->version() : "";
    return Output{.text = absl::StrCat("hixlctl ", kVersion, "\nhixld   ",
                                       daemon.empty() ? "not running" : Printable(daemon), "\n"),
                  .words = {{"hixlctl", kVersion}, {"hixld", daemon}},
                  .message = nullptr,
                  .json_name = ""};
  };
}

}  // namespace hixld::hixlctl
