// hixlctl transfers: what is under way, and what went wrong lately.
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/hixlctl/command.h"
#include "client/hixlctl/human.h"
#include "client/hixlctl/table.h"
#include "proto/base/status.h"

namespace hixld::hixlctl {
namespace {

std::string OpWord(const hixl::v1::TransferInfo& transfer) {
  return EnumWord(hixl::v1::TransferOp_Name(transfer.op()), "TRANSFER_OP_");
}

std::string StateWord(const hixl::v1::TransferInfo& transfer) {
  return EnumWord(hixl::v1::TransferState_Name(transfer.state()), "TRANSFER_STATE_");
}

std::string DoneText(const hixl::v1::TransferInfo& transfer) {
  if (transfer.bytes() == 0) return "";
  return absl::StrFormat("%.0f%%", 100.0 * static_cast<double>(transfer.bytes_done()) /
                                       static_cast<double>(transfer.bytes()));
}

std::string ActiveText(const hixl::v1::ListTransfersResponse& response) {
  Table table({{"TRANSFER", Align::kRight},
               {"LOCAL ENGINE"},
               {"REMOTE ENGINE"},
               {"OP"},
               {"TRANSPORT"},
               {"BLOCKS", Align::kRight},
               {"BYTES", Align::kRight},
               {"DONE", Align::kRight},
               {"AGE", Align::kRight},
               {"DEADLINE", Align::kRight},
               {"STATE"}});
  for (const hixl::v1::TransferInfo& transfer : response.active()) {
    table.AddRow(
        {absl::StrCat(transfer.transfer_id()), transfer.local_engine(), transfer.remote_engine(),
         OpWord(transfer), transfer.transport(), absl::StrCat(transfer.descriptors()),
         HumanBytes(transfer.bytes()), DoneText(transfer), HumanMicros(transfer.age_us()),
         transfer.deadline_ms() < 0 ? "none"
                                    : HumanMillis(static_cast<uint64_t>(transfer.deadline_ms())),
         StateWord(transfer)});
  }
  return table.ToString("No transfers under way.");
}

std::string FailuresText(const hixl::v1::ListTransfersResponse& response) {
  Table table({{"ENDED", Align::kRight},
               {"TRANSFER", Align::kRight},
               {"LOCAL ENGINE"},
               {"REMOTE ENGINE"},
               {"OP"},
               {"BYTES", Align::kRight},
               {"STATE"},
               {"REASON"}});
  for (const hixl::v1::FailedTransferInfo& failure : response.recent_failures()) {
    const hixl::v1::TransferInfo& transfer = failure.transfer();
    table.AddRow({HumanMillis(failure.ago_ms()) + " ago", absl::StrCat(transfer.transfer_id()),
                  transfer.local_engine(), transfer.remote_engine(), OpWord(transfer),
                  HumanBytes(transfer.bytes()), StateWord(transfer), failure.message()});
  }
  return table.empty() ? "" : "\n" + table.ToString("");
}

}  // namespace

Action PrepareTransfers(CLI::App&) {
  return [](AdminClient& client) -> absl::StatusOr<Output> {
    HIXLD_ASSIGN_OR_RETURN(auto response, client.ListTransfers());
    std::string text = ActiveText(response) + FailuresText(response);
    return AnswerOutput(std::move(text), std::move(response));
  };
}

}  // namespace hixld::hixlctl
