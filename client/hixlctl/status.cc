// hixlctl status: the daemon at a glance.
#include "proto/base/status.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/hixlctl/command.h"
#include "client/hixlctl/human.h"
#include "client/hixlctl/table.h"

namespace hixld::hixlctl {
namespace {

std::string Text(const hixl::v1::GetStatusResponse& s) {
  std::string out;
  const auto line = [&out](const char* name, const std::string& value) {
    absl::StrAppend(&out, absl::StrFormat("%-11s ", name), Printable(value), "\n");
  };
  line("hixld", absl::StrCat(s.version(), ", pid ", s.pid(), ", up ", HumanMillis(s.uptime_ms()),
                             s.private_daemon() ? ", private" : ""));
  line("node", s.node_id());
  line("socket", s.socket_path());
  line("config", s.config_path().empty() ? "built-in defaults" : s.config_path());
  line("security", s.security());
  if (!s.tcp_congestion_control().empty()) {
    line("tcp", "congestion control " + s.tcp_congestion_control());
  }
  line("workers", absl::StrCat(s.workers()));
  line("sessions", absl::StrCat(s.sessions(), ", engines ", s.engines()));
  line("memory", absl::StrCat(HumanBytes(s.registered_bytes()), " registered in ", s.regions(),
                              " regions, ", HumanBytes(s.rss_bytes()), " resident"));
  line("links", absl::StrCat(s.links(), ", channels ", s.channels()));
  line("transfers",
       absl::StrCat(s.transfers_active(), " active, ", s.transfers_completed(), " completed, ",
                    s.transfers_failed(), " failed, ", s.transfers_timed_out(), " timed out"));
  line("bytes", absl::StrCat(HumanBytes(s.bytes_read()), " read, ", HumanBytes(s.bytes_written()),
                             " written"));
  if (s.descriptors_out() > 0) {
    line("merging", absl::StrFormat("%d blocks in %d copies (%.1f)", s.descriptors_in(),
                                    s.descriptors_out(), s.merge_ratio()));
  }
  if (s.merges() > 0) {
    line("batching", absl::StrCat(s.merged_transfers(), " transfers sent as ", s.merges()));
  }
  if (s.huge_page_fallbacks() > 0) {
    line("huge pages",
         absl::StrCat("fell back to ordinary pages ", s.huge_page_fallbacks(), " times"));
  }
  return out;
}

}  // namespace

Action PrepareStatus(CLI::App&) {
  return [](AdminClient& client) -> absl::StatusOr<Output> {
    HIXLD_ASSIGN_OR_RETURN(auto response, client.GetStatus());
    std::string text = Text(response);
    return AnswerOutput(std::move(text), std::move(response), "status");
  };
}

}  // namespace hixld::hixlctl
