#include "daemon/telemetry/node_metrics.h"

#include <dirent.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <memory>
#include <sstream>
#include <utility>

#include "proto/base/version.h"

namespace hixld {
namespace {

template <typename Row>
struct Column {
  MetricKind kind;
  const char* name;
  const char* help;
  double (*value)(const Row&);
};

constexpr Column<NodeCounts> kNodeColumns[] = {
    {MetricKind::kGauge, "hixld_sessions", "Client processes.",
     [](const NodeCounts& n) { return static_cast<double>(n.sessions); }},
    {MetricKind::kGauge, "hixld_engines", "Open engines.",
     [](const NodeCounts& n) { return static_cast<double>(n.engines); }},
    {MetricKind::kGauge, "hixld_regions", "Registered regions.",
     [](const NodeCounts& n) { return static_cast<double>(n.regions); }},
    {MetricKind::kGauge, "hixld_registered_bytes", "Bytes of all registered regions.",
     [](const NodeCounts& n) { return static_cast<double>(n.registered_bytes); }},
    {MetricKind::kGauge, "hixld_channels", "Connections between engines.",
     [](const NodeCounts& n) { return static_cast<double>(n.channels); }},
    {MetricKind::kGauge, "hixld_links", "Links to other daemons.",
     [](const NodeCounts& n) { return static_cast<double>(n.links); }},
    {MetricKind::kGauge, "hixld_transfers_active", "Transfers under way.",
     [](const NodeCounts& n) { return static_cast<double>(n.transfers_active); }},
    {MetricKind::kGauge, "hixld_notifies_queued", "Notifies that their receivers have not fetched.",
     [](const NodeCounts& n) { return static_cast<double>(n.notifies_queued); }},
    {MetricKind::kCounter, "hixld_huge_page_fallbacks_total",
     "Arenas that got ordinary pages because no huge pages were free.",
     [](const NodeCounts& n) { return static_cast<double>(n.huge_page_fallbacks); }},
    {MetricKind::kCounter, "hixld_merges_total",
     "Transfers on links that stood for several of a client (batching.window_us).",
     [](const NodeCounts& n) { return static_cast<double>(n.merges); }},
    {MetricKind::kCounter, "hixld_merged_transfers_total",
     "Transfers of clients that went over a link together with others.",
     [](const NodeCounts& n) { return static_cast<double>(n.merged_transfers); }},
    {MetricKind::kGauge, "hixld_rdma_registrations", "Memory registrations with RDMA devices.",
     [](const NodeCounts& n) { return static_cast<double>(n.rdma_registrations); }},
    {MetricKind::kGauge, "hixld_rdma_registered_bytes",
     "Bytes that are registered with RDMA devices; counted once per registration.",
     [](const NodeCounts& n) { return static_cast<double>(n.rdma_registered_bytes); }},
    {MetricKind::kCounter, "hixld_rdma_registrations_made_total",
     "Memory registrations with RDMA devices that were made.",
     [](const NodeCounts& n) { return static_cast<double>(n.rdma_registrations_made); }},
    {MetricKind::kCounter, "hixld_rdma_registrations_failed_total",
     "Memory registrations that an RDMA device refused.",
     [](const NodeCounts& n) { return static_cast<double>(n.rdma_registrations_failed); }},
};

constexpr Column<LaneCounts> kLaneColumns[] = {
    {MetricKind::kGauge, "hixld_lane_up", "1 while the lane can carry data.",
     [](const LaneCounts& l) { return l.up ? 1.0 : 0.0; }},
    {MetricKind::kCounter, "hixld_lane_sent_bytes_total", "Bytes sent on a lane.",
     [](const LaneCounts& l) { return static_cast<double>(l.bytes_sent); }},
    {MetricKind::kCounter, "hixld_lane_received_bytes_total", "Bytes received on a lane.",
     [](const LaneCounts& l) { return static_cast<double>(l.bytes_received); }},
    {MetricKind::kCounter, "hixld_lane_reconnects_total", "How often a lane was connected again.",
     [](const LaneCounts& l) { return static_cast<double>(l.reconnects); }},
};

constexpr Column<PoolCounts> kPoolColumns[] = {
    {MetricKind::kGauge, "hixld_pool_capacity_bytes", "Most memory that a pool may take.",
     [](const PoolCounts& p) { return static_cast<double>(p.capacity_bytes); }},
    {MetricKind::kGauge, "hixld_pool_used_bytes", "Bytes of a pool that are given out.",
     [](const PoolCounts& p) { return static_cast<double>(p.used_bytes); }},
    {MetricKind::kGauge, "hixld_pool_buffers", "Buffers of a pool that are given out.",
     [](const PoolCounts& p) { return static_cast<double>(p.buffers); }},
};

constexpr Column<ProcessUsage> kProcessColumns[] = {
    {MetricKind::kGauge, "process_resident_memory_bytes", "Resident memory size in bytes.",
     [](const ProcessUsage& p) { return static_cast<double>(p.resident_bytes); }},
    {MetricKind::kGauge, "process_open_fds", "Number of open file descriptors.",
     [](const ProcessUsage& p) { return static_cast<double>(p.open_fds); }},
    {MetricKind::kCounter, "process_cpu_seconds_total", "User and system CPU time in seconds.",
     [](const ProcessUsage& p) { return p.cpu_seconds; }},
    {MetricKind::kGauge, "process_start_time_seconds", "Start time since the epoch in seconds.",
     [](const ProcessUsage& p) { return p.start_time_seconds; }},
};

MetricLabels LabelsOf(const NodeCounts&) { return {}; }
MetricLabels LabelsOf(const ProcessUsage&) { return {}; }
MetricLabels LabelsOf(const PoolCounts& pool) { return {{"pool", pool.pool}}; }
MetricLabels LabelsOf(const LaneCounts& lane) {
  return {{"peer", lane.peer}, {"transport", lane.transport}, {"lane", lane.lane}};
}

// Registers the columns as one group. `read` gives the rows.
template <typename Row, size_t N, typename Read>
Metrics::Registration AddColumns(Metrics* metrics, const Column<Row> (&columns)[N], Read read) {
  std::vector<MetricFamilySpec> families;
  for (const Column<Row>& column : columns) {
    families.push_back({column.kind, column.name, column.help});
  }
  return metrics->AddGroup(std::move(families), [&columns, read = std::move(read)] {
    const std::vector<Row> rows = read();
    std::vector<std::vector<MetricSample>> samples;
    for (const Column<Row>& column : columns) {
      auto& of_column = samples.emplace_back();
      for (const Row& row : rows) of_column.push_back({LabelsOf(row), column.value(row)});
    }
    return samples;
  });
}

uint64_t ResidentBytes() {
  std::ifstream file("/proc/self/statm");
  uint64_t total = 0;
  uint64_t resident = 0;
  file >> total >> resident;
  return resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

uint64_t OpenFds() {
  DIR* const directory = opendir("/proc/self/fd");
  if (directory == nullptr) return 0;
  uint64_t entries = 0;
  while (readdir(directory) != nullptr) ++entries;
  closedir(directory);
  // ".", ".." and the directory's own descriptor.
  return entries > 3 ? entries - 3 : 0;
}

// When the process started, in seconds since boot: field 22 of stat, counted after the name in
// parentheses, which may itself hold blanks.
double StartSinceBoot() {
  std::ifstream file("/proc/self/stat");
  std::string line;
  std::getline(file, line);
  const size_t name_end = line.rfind(')');
  if (name_end == std::string::npos) return 0;
  std::istringstream fields(line.substr(name_end + 1));
  std::string field;
  constexpr int kStartAfterName = 20;
  for (int i = 0; i < kStartAfterName; ++i) fields >> field;
  return std::strtod(field.c_str(), nullptr) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

double ClockSeconds(clockid_t clock) {
  timespec now;
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

}  // namespace

ProcessUsage ReadProcessUsage() {
  ProcessUsage usage;
  usage.resident_bytes = ResidentBytes();
  usage.open_fds = OpenFds();
  usage.cpu_seconds = ClockSeconds(CLOCK_PROCESS_CPUTIME_ID);
  usage.start_time_seconds =
      ClockSeconds(CLOCK_REALTIME) - ClockSeconds(CLOCK_BOOTTIME) + StartSinceBoot();
  return usage;
}

NodeMetrics::NodeMetrics(Metrics* metrics, NodeReaders readers) {
  registrations_.push_back(metrics->AddReader(
      {MetricKind::kGauge, "hixld_build_info", "Always 1; which release runs."}, [] {
        return std::vector<MetricSample>{{{{"version", kVersion}}, 1}};
      }));
  registrations_.push_back(AddColumns(
      metrics, kProcessColumns, [] { return std::vector<ProcessUsage>{ReadProcessUsage()}; }));
  if (readers.node) {
    registrations_.push_back(AddColumns(metrics, kNodeColumns, [node = std::move(readers.node)] {
      return std::vector<NodeCounts>{node()};
    }));
  }
  if (readers.lanes) {
    registrations_.push_back(AddColumns(metrics, kLaneColumns, std::move(readers.lanes)));
  }
  if (readers.pools) {
    registrations_.push_back(AddColumns(metrics, kPoolColumns, std::move(readers.pools)));
  }
}

}  // namespace hixld
