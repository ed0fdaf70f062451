// What the daemon holds at the moment, read from the rooms when somebody reads the metrics.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "daemon/telemetry/metrics.h"

namespace hixld {

struct NodeCounts {
  uint64_t sessions = 0;
  uint64_t engines = 0;
  uint64_t regions = 0;
  uint64_t registered_bytes = 0;
  uint64_t channels = 0;
  uint64_t links = 0;
  uint64_t transfers_active = 0;
  uint64_t notifies_queued = 0;
  uint64_t huge_page_fallbacks = 0;
  uint64_t merges = 0;
  uint64_t merged_transfers = 0;
  uint64_t rdma_registrations = 0;
  uint64_t rdma_registered_bytes = 0;
  uint64_t rdma_registrations_made = 0;
  uint64_t rdma_registrations_failed = 0;
};

struct LaneCounts {
  std::string peer;       // the peer node's address
  std::string transport;  // "tcp", "rdma"
  std::string lane;       // index
  bool up = false;
  uint64_t bytes_sent = 0;
  uint64_t bytes_received = 0;
  uint64_t reconnects = 0;
};

struct PoolCounts {
  std::string pool;  // "host", "relay", "sim:0"
  uint64_t capacity_bytes = 0;
  uint64_t used_bytes = 0;
  uint64_t buffers = 0;
};

// Where the values come from; each is called once per reading, from the reading thread, and must
// not wait long. An empty function leaves its metrics out.
struct NodeReaders {
  std::function<NodeCounts()> node;
  std::function<std::vector<LaneCounts>()> lanes;
  std::function<std::vector<PoolCounts>()> pools;
};

// hixld_build_info, hixld_sessions and so on, and the process_* metrics. They are there as long as
// this object lives; `metrics` must live longer.
class NodeMetrics {
 public:
  NodeMetrics(Metrics* metrics, NodeReaders readers);

 private:
  std::vector<Metrics::Registration> registrations_;
};

// This process as the kernel accounts for it.
struct ProcessUsage {
  uint64_t resident_bytes = 0;
  uint64_t open_fds = 0;
  double cpu_seconds = 0;
  double start_time_seconds = 0;  // since the epoch
};
ProcessUsage ReadProcessUsage();

}  // namespace hixld
