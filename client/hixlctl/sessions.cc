// hixlctl sessions: the client processes.
#include "absl/strings/str_cat.h"
#include "client/hixlctl/command.h"
#include "client/hixlctl/human.h"
#include "client/hixlctl/table.h"
#include "proto/base/status.h"

namespace hixld::hixlctl {
namespace {

std::string Text(const hixl::v1::ListSessionsResponse& response) {
  Table table({{"SESSION", Align::kRight},
               {"PID", Align::kRight},
               {"USER"},
               {"CLIENT"},
               {"LIBRARY"},
               {"AGE", Align::kRight},
               {"ENGINES", Align::kRight},
               {"REGIONS", Align::kRight},
               {"REGISTERED", Align::kRight},
               {"BUFFERS", Align::kRight},
               {"ACTIVE", Align::kRight},
               {"PLAIN MEMORY"},
               {"STATE"}});
  for (const hixl::v1::SessionInfo& session : response.sessions()) {
    table.AddRow(
        {absl::StrCat(session.session_id()), absl::StrCat(session.pid()), UserName(session.uid()),
         session.client_name(), session.library_version(), HumanMillis(session.age_ms()),
         absl::StrCat(session.engines()), absl::StrCat(session.regions()),
         HumanBytes(session.registered_bytes()), HumanBytes(session.buffer_bytes()),
         absl::StrCat(session.transfers_active()),
         session.process_memory_readable() ? "direct" : "by relay",
         absl::StrCat(session.state(), session.detail().empty() ? "" : ": ", session.detail())});
  }
  return table.ToString("No sessions.");
}

}  // namespace

Action PrepareSessions(CLI::App&) {
  return [](AdminClient& client) -> absl::StatusOr<Output> {
    HIXLD_ASSIGN_OR_RETURN(auto response, client.ListSessions());
    std::string text = Text(response);
    return AnswerOutput(std::move(text), std::move(response));
  };
}

}  // namespace hixld::hixlctl
