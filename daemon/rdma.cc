#include "daemon/rdma.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/telemetry/log.h"
#include "proto/base/status.h"

namespace hixld {
namespace {

bool Has(const std::vector<std::string>& names, const char* name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

void LogEvent(const RdmaEvent& event) {
  const LogLevel level =
      event.severity == RdmaEvent::Severity::kWarning ? LogLevel::kWarn : LogLevel::kInfo;
  if (event.device.empty()) return Log(level, "RDMA event", {{"text", event.text}});
  Log(level, "RDMA event", {{"device", event.device}, {"port", event.port}, {"text", event.text}});
}

void LogPorts(const RdmaTransport& transport) {
  const auto ports = transport.Ports();
  if (!ports.ok()) return LogWarn("RDMA cannot be used yet", {{"reason", ports.status()}});
  const std::string names =
      absl::StrJoin(*ports, ", ", [](std::string* out, const RdmaTransport::Port& port) {
        absl::StrAppend(out, port.name, " ", port.gids.front());
      });
  LogInfo("RDMA is used", {{"ports", names}});
}

RdmaOptions OptionsOf(const Config::Rdma& from) {
  RdmaOptions options;
  options.selection.devices = from.devices;
  options.selection.interfaces = from.interfaces;
  if (!absl::SimpleAtoi(from.gid_index, &options.selection.gid_index)) {
    options.selection.gid_index = -1;
  }
  options.selection.allow_link_local = from.allow_link_local;
  options.selection.mtu = from.mtu;
  options.lanes = static_cast<uint32_t>(from.lanes);
  options.queue_depth = static_cast<uint32_t>(from.queue_depth);
  options.message_bytes = from.message_bytes;
  options.inflight_bytes = std::max(options.inflight_bytes, 4 * from.message_bytes);
  options.registration_bytes = from.registration_bytes;
  options.retry_count = static_cast<uint8_t>(from.retry_count);
  options.ack_timeout = static_cast<uint8_t>(from.ack_timeout);
  options.give_up_ns = from.fallback_after.count();
  options.on_event = LogEvent;
  return options;
}

}  // namespace

RdmaClass RdmaClassOf(const Config& config) {
  return {.traffic_class = static_cast<uint8_t>(config.rdma.traffic_class),
          .service_level = static_cast<uint8_t>(config.rdma.service_level)};
}

absl::StatusOr<Rdma> StartRdma(const Config& config, WorkerSet* workers) {
  Rdma rdma;
  if (!Has(config.node.transports, "rdma")) return rdma;
  RdmaOptions options = OptionsOf(config.rdma);
  options.wait_for_ports = Has(config.node.transports, "tcp");
  auto made = RdmaTransport::Create(workers, std::move(options));
  if (made.ok()) {
    rdma.transport = *std::move(made);
    LogPorts(*rdma.transport);
    return rdma;
  }
  if (!Has(config.node.transports, "tcp")) {
    return ParamInvalid(absl::StrCat("node.transports has nothing but rdma, which cannot be used: ",
                                     made.status().message()),
                        {.object = "node.transports", .option = "node.transports"});
  }
  // A node without any device is no news, unless the configuration names one.
  const bool asked = !config.rdma.devices.empty() || !config.rdma.interfaces.empty();
  const bool no_device =
      absl::IsNotFound(made.status()) || ApiCodeOf(made.status()) == ApiCode::kUnsupported;
  if (no_device && !asked) {
    LogDebug("RDMA is not used", {{"reason", made.status()}});
    return rdma;
  }
  rdma.why_not = std::string(made.status().message());
  LogWarn("RDMA is not used", {{"reason", made.status()}});
  return rdma;
}

}  // namespace hixld
