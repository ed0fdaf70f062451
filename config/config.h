// The daemon's configuration as plain data. A default-constructed Config is the default
// configuration. Member paths are the keys: config.tcp.lanes is "tcp.lanes". What a key means, its
// unit and its range stand in schema.cc, and generated from there in docs/config.md.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace hixld {

constexpr uint64_t kKiB = 1024;
constexpr uint64_t kMiB = 1024 * kKiB;
constexpr uint64_t kGiB = 1024 * kMiB;
constexpr uint64_t kTiB = 1024 * kGiB;

enum class HugePages { kOff, kTry, kRequire };
enum class SimPlace { kDaemon, kClient };
enum class DirectCopies { kOff, kSameUid };
enum class LogLevel { kDebug, kInfo, kWarn, kError };
enum class LogFormat { kText, kJson };

struct Config {
  // The configuration file's format.
  uint64_t version = 1;

  struct Socket {
    std::string path;
    uint32_t mode = 0660;
    std::string group;
  } socket;

  struct Node {
    std::string data_address;
    std::vector<std::string> transports = {"rdma", "tcp"};
  } node;

  struct Security {
    std::string cluster_key_file;
    bool allow_unauthenticated_network = false;
    bool relay_unregistered_memory = true;
  } security;

  struct Workers {
    uint64_t count = 0;
    uint64_t spin_us = 200;
    uint64_t process_copy_threads = 2;
    uint64_t control_threads = 4;
  } workers;

  struct Pools {
    struct Host {
      uint64_t arena_bytes = 64 * kMiB;
      uint64_t max_bytes = 8 * kGiB;
      HugePages huge_pages = HugePages::kTry;
    } host;
    struct Relay {
      uint64_t bytes = 64 * kMiB;
      uint64_t slot_bytes = 1 * kMiB;
    } relay;
  } pools;

  struct Devices {
    std::vector<std::string> backends = {"host", "sim"};
    struct Sim {
      uint64_t count = 2;
      uint64_t memory_bytes = 1 * kGiB;
      std::string product = "Ascend910B3";
      bool product_limits = false;
      uint64_t copy_bandwidth = 0;
      SimPlace place = SimPlace::kDaemon;
    } sim;
  } devices;

  struct Tcp {
    uint64_t lanes = 2;
    uint64_t stripe_bytes = 1 * kMiB;
    uint64_t window_stripes = 8;
    uint64_t socket_buffer_bytes = 0;
    std::string congestion_control;
    uint64_t zero_copy_bytes = 0;
    std::vector<std::string> interfaces;
    std::chrono::nanoseconds connect_timeout = std::chrono::seconds(5);
    std::chrono::nanoseconds keepalive_interval = std::chrono::seconds(1);
    std::chrono::nanoseconds keepalive_timeout = std::chrono::seconds(5);
  } tcp;

  struct Rdma {
    std::vector<std::string> devices;
    std::vector<std::string> interfaces;
    std::string gid_index = "auto";
    bool allow_link_local = false;
    uint32_t mtu = 0;
    uint64_t lanes = 2;
    uint64_t queue_depth = 256;
    uint64_t message_bytes = 1 * kMiB;
    uint64_t registration_bytes = 1 * kGiB;
    uint64_t traffic_class = 132;
    uint64_t service_level = 4;
    uint64_t retry_count = 6;
    uint64_t ack_timeout = 14;
    std::chrono::nanoseconds fallback_after = std::chrono::seconds(3);
  } rdma;

  struct Local {
    uint64_t split_bytes = 1 * kMiB;
    uint64_t chunk_bytes = 256 * kKiB;
    DirectCopies direct = DirectCopies::kSameUid;
    uint64_t direct_max_bytes = 1 * kMiB;
    std::chrono::nanoseconds direct_patience = std::chrono::seconds(5);
  } local;

  struct Batching {
    uint64_t window_us = 0;
    uint64_t max_requests = 64;
    uint64_t max_bytes = 256 * kKiB;
  } batching;

  struct Rings {
    uint64_t entries = 1024;
    uint64_t slots = 4096;
    uint64_t arena_descriptors = 65'536;
  } rings;

  struct Limits {
    uint64_t max_sessions = 1024;
    uint64_t max_sessions_per_uid = 512;
    uint64_t max_engines_per_session = 64;
    uint64_t max_regions_per_session = 262'144;
    uint64_t max_regions_per_call = 16'384;
    uint64_t max_memory_handles_per_session = 4096;
    uint64_t max_buffers_per_session = 16'384;
    uint64_t max_buffer_bytes_per_session = 8 * kGiB;
    uint64_t max_channels_per_engine = 4096;
    uint64_t max_transfers_per_engine = 4096;
    uint64_t max_descriptors_per_transfer = 1'048'576;
    uint64_t max_notifies_per_channel = 4096;
    uint64_t max_notify_bytes_per_engine = 64 * kMiB;
    uint64_t max_links = 512;
    uint64_t max_rpc_message_bytes = 32 * kMiB;
  } limits;

  struct Log {
    LogLevel level = LogLevel::kInfo;
    LogFormat format = LogFormat::kText;
  } log;

  struct Telemetry {
    std::string metrics_address;
  } telemetry;

  // The file that was read; empty for built-in defaults.
  std::string file;
  // Where each key that is not left to its default was set: "hixld.yaml:12" or "--set".
  std::map<std::string, std::string> set_at;
};

}  // namespace hixld
