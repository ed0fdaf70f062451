// hixlctl health: whether the daemon serves; for probes.
#include "absl/strings/str_cat.h"
#include "client/hixlctl/command.h"
#include "proto/base/status.h"

namespace hixld::hixlctl {

Action PrepareHealth(CLI::App&) {
  return [](AdminClient& client) -> absl::StatusOr<Output> {
    HIXLD_ASSIGN_OR_RETURN(const std::string health, client.Health());
    return Output{.text = health + "\n",
                  .words = {{"health", health}},
                  .message = nullptr,
                  .json_name = "",
                  .exit_code = health == "serving" ? 0 : 1};
  };
}

}  // namespace hixld::hixlctl
