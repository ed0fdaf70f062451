// hixlctl regions: registered memory.
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include "absl/strings/str_cat.h"
#include "client/hixlctl/command.h"
#include "client/hixlctl/human.h"
#include "client/hixlctl/table.h"
#include "proto/base/status.h"

namespace hixld::hixlctl {
namespace {

std::string Text(const hixl::v1::ListRegionsResponse& response) {
  Table table({{"REGION", Align::kRight},
               {"ENGINE"},
               {"ADDRESS", Align::kRight},
               {"LENGTH", Align::kRight},
               {"SIZE", Align::kRight},
               {"TYPE"},
               {"ACCESS"}});
  for (const hixl::v1::RegionInfo& region : response.regions()) {
    table.AddRow({absl::StrCat(region.region_id()), region.engine_id(),
                  HumanAddress(region.address()), absl::StrCat(region.length()),
                  HumanBytes(region.length()),
                  EnumWord(hixl::v1::MemoryType_Name(region.type()), "MEMORY_TYPE_"),
                  EnumWord(hixl::v1::MemoryAccess_Name(region.access()), "MEMORY_ACCESS_")});
  }
  return table.ToString("No regions.");
}

}  // namespace

Action PrepareRegions(CLI::App& app) {
  const auto engine = std::make_shared<std::string>();
  app.add_option("--engine", *engine, "Only those of this engine, such as 10.0.0.1:26000");
  return [engine](AdminClient& client) -> absl::StatusOr<Output> {
    HIXLD_ASSIGN_OR_RETURN(auto response, client.ListRegions(*engine));
    std::string text = Text(response);
    return AnswerOutput(std::move(text), std::move(response));
  };
}

}  // namespace hixld::hixlctl
