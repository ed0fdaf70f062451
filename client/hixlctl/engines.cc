// hixlctl engines: the engines, their channels and, when asked for, the options that took effect.
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <map>

#include "absl/strings/str_cat.h"
#include "client/hixlctl/command.h"
#include "client/hixlctl/human.h"
#include "client/hixlctl/table.h"
#include "proto/base/status.h"

namespace hixld::hixlctl {
namespace {

std::string EnginesText(const hixl::v1::ListEnginesResponse& response) {
  Table table({{"ENGINE"},
               {"KIND"},
               {"SESSION", Align::kRight},
               {"PORT", Align::kRight},
               {"DEVICE", Align::kRight},
               {"REGIONS", Align::kRight},
               {"REGISTERED", Align::kRight},
               {"CHANNELS", Align::kRight},
               {"ACTIVE", Align::kRight},
               {"COMPLETED", Align::kRight},
               {"FAILED", Align::kRight},
               {"RELAYED", Align::kRight},
               {"READ", Align::kRight},
               {"WRITTEN", Align::kRight},
               {"NOTIFIED", Align::kRight},
               {"RECEIVED", Align::kRight},
               {"QUEUED", Align::kRight}});
  for (const hixl::v1::EngineInfo& engine : response.engines()) {
    table.AddRow({engine.engine_id(), engine.engine_kind(), absl::StrCat(engine.session_id()),
                  engine.listen_port() == 0 ? "" : absl::StrCat(engine.listen_port()),
                  absl::StrCat(engine.device_id()), absl::StrCat(engine.regions()),
                  HumanBytes(engine.registered_bytes()), absl::StrCat(engine.channels_size()),
                  absl::StrCat(engine.transfers_active()),
                  absl::StrCat(engine.transfers_completed()),
                  absl::StrCat(engine.transfers_failed()), absl::StrCat(engine.transfers_relayed()),
                  HumanBytes(engine.bytes_read()), HumanBytes(engine.bytes_written()),
                  absl::StrCat(engine.notifies_sent()), absl::StrCat(engine.notifies_received()),
                  absl::StrCat(engine.notifies_queued())});
  }
  return table.ToString("No engines.");
}

// Empty when no engine has a channel.
std::string ChannelsText(const hixl::v1::ListEnginesResponse& response) {
  Table table({{"ENGINE"},
               {"CHANNEL", Align::kRight},
               {"REMOTE ENGINE"},
               {"ROLE"},
               {"TRANSPORT"},
               {"PROTOCOL"},
               {"STATE"},
               {"TRANSFERS", Align::kRight},
               {"BYTES", Align::kRight},
               {"DIRECT", Align::kRight},
               {"DIRECT BYTES", Align::kRight},
               {"NOTIFIES", Align::kRight}});
  for (const hixl::v1::EngineInfo& engine : response.engines()) {
    for (const hixl::v1::ChannelInfo& channel : engine.channels()) {
      table.AddRow({engine.engine_id(), absl::StrCat(channel.channel_id()), channel.remote_engine(),
                    channel.initiator() ? "initiator" : "target", channel.transport(),
                    channel.protocol(), channel.state(), absl::StrCat(channel.transfers()),
                    HumanBytes(channel.bytes()), absl::StrCat(channel.direct_transfers()),
                    HumanBytes(channel.direct_bytes()), absl::StrCat(channel.notifies())});
    }
  }
  return table.empty() ? "" : "\n" + table.ToString("");
}

// What took effect and why; for clients that do not tell, what they gave.
std::string OptionsText(const hixl::v1::ListEnginesResponse& response) {
  Table table({{"ENGINE"}, {"OPTION"}, {"VALUE"}, {"FROM"}});
  for (const hixl::v1::EngineInfo& engine : response.engines()) {
    for (const hixl::v1::EffectiveOption& option : engine.effective_options()) {
      table.AddRow({engine.engine_id(), option.name(), option.value(), option.source()});
    }
    if (engine.effective_options_size() > 0) continue;
    // A protobuf map has no order.
    const std::map<std::string, std::string> options(engine.options().begin(),
                                                     engine.options().end());
    for (const auto& [name, value] : options) {
      table.AddRow({engine.engine_id(), name, value, "option"});
    }
  }
  return "\n" + table.ToString("No options.");
}

}  // namespace

Action PrepareEngines(CLI::App& app) {
  const auto options = std::make_shared<bool>(false);
  app.add_flag("--options", *options,
               "Also show which options took effect, and where each value came from");
  return [options](AdminClient& client) -> absl::StatusOr<Output> {
    HIXLD_ASSIGN_OR_RETURN(auto response, client.ListEngines());
    std::string text = EnginesText(response) + ChannelsText(response);
    if (*options) text += OptionsText(response);
    return AnswerOutput(std::move(text), std::move(response));
  };
}

}  // namespace hixld::hixlctl
