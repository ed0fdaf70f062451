// hixlctl links: the connections to other daemons and their lanes.
#include "absl/strings/str_cat.h"
#include "client/hixlctl/command.h"
#include "client/hixlctl/human.h"
#include "client/hixlctl/table.h"
#include "proto/base/status.h"

namespace hixld::hixlctl {
namespace {

std::string LinksText(const hixl::v1::ListLinksResponse& response) {
  Table table({{"PEER"},
               {"NODE"},
               {"TRANSPORT"},
               {"STATE"},
               {"CHANNELS", Align::kRight},
               {"LANES", Align::kRight},
               {"AGE", Align::kRight},
               {"SILENT", Align::kRight},
               {"DETAIL"}});
  for (const hixl::v1::LinkInfo& link : response.links()) {
    table.AddRow({link.peer_address(), link.peer_node_id(), link.transport(), link.state(),
                  absl::StrCat(link.channels()), absl::StrCat(link.lanes_size()),
                  HumanMillis(link.age_ms()), HumanMillis(link.silent_ms()), link.detail()});
  }
  return table.ToString("No links.");
}

std::string LanesText(const hixl::v1::ListLinksResponse& response) {
  Table table({{"PEER"},
               {"LANE", Align::kRight},
               {"VIA"},
               {"LOCAL"},
               {"REMOTE"},
               {"STATE"},
               {"SENT", Align::kRight},
               {"RECEIVED", Align::kRight},
               {"RECONNECTS", Align::kRight},
               {"LAST FAILURE"}});
  for (const hixl::v1::LinkInfo& link : response.links()) {
    for (const hixl::v1::LaneInfo& lane : link.lanes()) {
      table.AddRow({link.peer_address(), absl::StrCat(lane.index()), lane.transport(),
                    lane.local_address(), lane.remote_address(), lane.state(),
                    HumanBytes(lane.bytes_sent()), HumanBytes(lane.bytes_received()),
                    absl::StrCat(lane.reconnects()), lane.error()});
    }
  }
  return table.empty() ? "" : "\n" + table.ToString("");
}

}  // namespace

Action PrepareLinks(CLI::App&) {
  return [](AdminClient& client) -> absl::StatusOr<Output> {
    HIXLD_ASSIGN_OR_RETURN(auto response, client.ListLinks());
    std::string text = LinksText(response) + LanesText(response);
    return AnswerOutput(std::move(text), std::move(response));
  };
}

}  // namespace hixld::hixlctl
