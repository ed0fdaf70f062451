// hixlctl pools: memory that the daemon owns.
#include "absl/strings/str_cat.h"
#include "client/hixlctl/command.h"
#include "client/hixlctl/human.h"
#include "client/hixlctl/table.h"
#include "proto/base/status.h"

namespace hixld::hixlctl {
namespace {

std::string Text(const hixl::v1::ListPoolsResponse& response) {
  Table table({{"POOL"},
               {"CAPACITY", Align::kRight},
               {"USED", Align::kRight},
               {"BUFFERS", Align::kRight},
               {"ARENAS", Align::kRight},
               {"HUGE PAGES"}});
  for (const hixl::v1::PoolInfo& pool : response.pools()) {
    table.AddRow({pool.name(), HumanBytes(pool.capacity_bytes()), HumanBytes(pool.used_bytes()),
                  absl::StrCat(pool.buffers()), absl::StrCat(pool.arenas()),
                  pool.huge_pages() ? "yes" : "no"});
  }
  return table.ToString("No pools.");
}

}  // namespace

Action PreparePools(CLI::App&) {
  return [](AdminClient& client) -> absl::StatusOr<Output> {
    HIXLD_ASSIGN_OR_RETURN(auto response, client.ListPools());
    std::string text = Text(response);
    return AnswerOutput(std::move(text), std::move(response));
  };
}

}  // namespace hixld::hixlctl
