// The options of Hixl::Initialize: parsing, checking and what kind of engine they ask for
// (contract 3.1 to 3.4). Pure: environment and files come in through `OptionsContext`.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace hixld::client {

using OptionMap = std::map<std::string, std::string>;

// Which upstream back end the options ask for; it decides what is allowed (contract 3.3).
enum class EngineKind {
  kComm,    // the default
  kHixl,    // LocalCommRes 1.3, protocol_desc or an Ascend950
  kFabric,  // EnableUseFabricMem=1
};
const char* EngineKindName(EngineKind kind);

struct FabricMemoryOptions {
  int64_t max_capacity_tib = 32;
  int64_t start_address_tib = 40;
  int64_t task_streams = 1;
  bool aicpu_unfold = true;
};

struct ChannelPoolOptions {
  int64_t max_channels = 512;
  // Both or none.
  std::optional<double> high_waterline;
  std::optional<double> low_waterline;
};

// One setting that took effect, for operators.
struct EffectiveOption {
  std::string name;
  std::string value;
  std::string source;  // "default", "option", "environment HCCL_RDMA_TC", "file ...", ...
};

struct EngineOptions {
  EngineKind kind = EngineKind::kComm;
  bool auto_connect = false;
  // HIXLD_DIRECT: this process copies by itself where the daemon grants it.
  bool direct = true;
  int64_t traffic_class = 132;
  int64_t service_level = 4;
  // Relay pool: how many buffers of how many MiB; 0:0 = no relay.
  int64_t relay_buffers = 4;
  int64_t relay_buffer_mib = 8;
  int64_t connect_threads = 2;
  int64_t connect_queue_capacity = 128;
  int64_t listen_port = 0;  // of the device's network card; 0 = not given
  int64_t qos = 0;
  int64_t max_active_channels = 128;
  std::vector<std::string> protocols;  // "roce:device", ...
  // What protocol_desc leaves of LocalCommRes's endpoints, else what it names; empty: the daemon
  // generates them.
  std::vector<std::string> endpoints;
  std::string net_instance_id;
  // LocalCommRes 1.3 leaves the list of endpoints to be made for the device (contract 3.4).
  bool generates_endpoints = false;
  // HCCL_INTRA_ROCE_ENABLE=1: of generated endpoints only RoCE is kept.
  bool force_roce = false;
  FabricMemoryOptions fabric;
  ChannelPoolOptions channel_pool;
  // Links are evicted to make room for others (contract 3.2).
  bool pools_channels() const {
    return kind == EngineKind::kComm && channel_pool.high_waterline.has_value();
  }
  // What the daemon is told: plain keys, aliases and environment resolved, local_comm_res_path
  // replaced by the file's content.
  OptionMap for_daemon;
  // Everything above with where it came from, in the order of the contract's tables.
  std::vector<EffectiveOption> effective;
};

struct OptionsContext {
  // nullopt: the variable is not set.
  std::function<std::optional<std::string>(const char* name)> getenv;
  // Whole content of a regular file of 1..1048576 bytes; otherwise why not.
  std::function<absl::StatusOr<std::string>(const std::string& path)> read_file;
  // Product name of the device, "" if there is none.
  std::string soc_name;

  // The process's environment and files.
  static OptionsContext System();
};

// PARAM_INVALID, with option and allowed values, for the first bad key or value.
absl::StatusOr<EngineOptions> ParseOptions(const OptionMap& options, const OptionsContext& context);

}  // namespace hixld::client
