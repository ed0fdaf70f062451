#include "config/schema.h"

#include <arpa/inet.h>
#include <net/if.h>

#include <cctype>
#include <cstddef>
#include <limits>

#include "absl/strings/match.h"
#include "config/field.h"
#include "proto/base/endpoint.h"

namespace hixld {
namespace config_internal {

std::string QuoteYaml(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + '"';
}

}  // namespace config_internal

namespace {

using config_internal::Choice;
using config_internal::Count;
using config_internal::Duration;
using config_internal::Flag;
using config_internal::Mode;
using config_internal::MultipleOf4;
using config_internal::PowerOfTwo;
using config_internal::Size;
using config_internal::Text;
using config_internal::TextList;
using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

// A unix socket's path has 108 bytes; a lock file and the fd channel get a suffix.
constexpr size_t kMaxSocketPath = 96;

std::optional<std::string> CheckSocketPath(const std::string& text) {
  if (!text.empty() && text.front() != '/') return "is not an absolute path";
  if (text.size() > kMaxSocketPath)
    return absl::StrCat("is longer than ", kMaxSocketPath, " bytes");
  if (!text.empty() && text.back() == '/') return "is a directory";
  return std::nullopt;
}

std::optional<std::string> CheckFilePath(const std::string& text) {
  if (!text.empty() && text.front() != '/') return "is not an absolute path";
  return std::nullopt;
}

std::optional<std::string> CheckName(const std::string& text) {
  if (text.size() > 64) return "is longer than 64 bytes";
  for (const char c : text) {
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '_' && c != '-' && c != '.') {
      return absl::StrCat("has the character '", std::string(1, c), "'");
    }
  }
  return std::nullopt;
}

std::optional<std::string> CheckProduct(const std::string& text) {
  return text.empty() ? "is empty" : CheckName(text);
}

std::optional<std::string> CheckBackend(const std::string& text) {
  if (text == "host" || text == "sim") return std::nullopt;
  return "is no device backend";
}

std::optional<std::string> CheckTransport(const std::string& text) {
  if (text == "rdma" || text == "tcp") return std::nullopt;
  return "is no transport between nodes";
}

std::optional<std::string> CheckRdmaDevice(const std::string& text) {
  const size_t colon = text.find(':');
  if (text.empty() || colon == 0) return "is no device name";
  if (colon != std::string::npos) {
    const std::optional<uint64_t> port = ParseCount(text.substr(colon + 1));
    if (!port || *port < 1 || *port > 255) return "has no port number after the colon";
  }
  return CheckName(text.substr(0, colon));
}

std::optional<std::string> CheckGidIndex(const std::string& text) {
  if (text == "auto") return std::nullopt;
  const std::optional<uint64_t> index = ParseCount(text);
  if (!index || *index > 255) return "is no index of a GID table";
  return std::nullopt;
}

std::optional<std::string> CheckInterface(const std::string& text) {
  if (text.empty() || text.size() >= IFNAMSIZ || text.find('/') != std::string::npos) {
    return "is no interface name";
  }
  return std::nullopt;
}

std::optional<std::string> CheckCongestionControl(const std::string& text) {
  if (text.size() > 15) return "is longer than 15 bytes";  // TCP_CA_NAME_MAX with its end
  return CheckName(text);
}

std::optional<std::string> CheckIpAddress(const std::string& text) {
  if (text.empty()) return std::nullopt;
  const bool bare_ipv6 = text.front() != '[' && text.find(':') != text.rfind(':');
  const auto endpoint = ParseEndpoint(bare_ipv6 ? absl::StrCat("[", text, "]") : text);
  if (!endpoint.ok()) return "is no IP address";
  if (endpoint->listens()) return "has a port";
  return std::nullopt;
}

std::optional<std::string> CheckListenAddress(const std::string& text) {
  if (text.empty()) return std::nullopt;
  const auto endpoint = ParseEndpoint(text);
  if (!endpoint.ok()) return "is no IP:PORT";
  if (!endpoint->listens() && !absl::EndsWith(text, ":0")) return "has no port";
  return std::nullopt;
}

// A key and the way to its member: the key is the member's path.
#define KEY(path) \
#path, [](Config & c) -> auto& { return c.path; }

std::vector<ConfigKey> SocketKeys() {
  return {
      Text(KEY(socket.path), "an absolute path of at most 96 bytes, or \"\"", CheckSocketPath,
           "Unix socket of the gRPC services; the fd channel's socket (.fd) and the lock file "
           "(.lock) "
           "stand beside it. Empty: /run/hixld/hixld.sock for the system service, "
           "$XDG_RUNTIME_DIR/hixld.sock (else /tmp/hixld-UID/hixld.sock) for a private daemon."),
      Mode(KEY(socket.mode), 0600, 0777,
           "Permission bits of the sockets. Who may write to them may use the daemon."),
      Text(KEY(socket.group), "a group's name, or \"\"", CheckName,
           "Group that owns the sockets. Empty: the daemon's own group."),
  };
}

std::vector<ConfigKey> NodeKeys() {
  return {
      Text(KEY(node.data_address), "an IP address without port, or \"\"", CheckIpAddress,
           "Address on which this node receives data lanes and which it tells its peers. Empty: "
           "each engine's own address."),
      TextList(
          KEY(node.transports), "rdma | tcp, each at most once", 1, 2, CheckTransport,
          "Transports between nodes, the preferred first; peers may use these towards this "
          "node too. Without rdma there is no RDMA. With rdma before tcp, TCP carries what RDMA "
          "cannot, and everything where one of the two nodes has no usable RDMA port. Without "
          "tcp such transfers fail, and a node that cannot use RDMA does not start."),
      Text(KEY(security.cluster_key_file), "an absolute path, or \"\"", CheckFilePath,
           "File with the pre-shared key (at least 32 bytes, mode 0600 or 0640) by which the "
           "daemons of a cluster prove themselves to each other. Empty: no key."),
      Flag(KEY(security.allow_unauthenticated_network),
           "Listen beyond loopback although there is no cluster key. Anyone who reaches the port "
           "can then read and write registered memory."),
      Flag(KEY(security.relay_unregistered_memory),
           "Whether synchronous transfers of engines whose BufferPool is not 0:0 may reach memory "
           "that its process has not registered, as HIXL allows by default. false: registered "
           "memory only."),
  };
}

std::vector<ConfigKey> WorkerKeys() {
  return {
      Count(KEY(workers.count), 0, 256,
            "Threads that move data. 0: one fewer than there are cores, at least 1 and at most 8."),
      Count(
          KEY(workers.spin_us), 0, 1000,
          "Microseconds for which a worker that has just had work looks for more before it sleeps; "
          "it yields its core meanwhile. Spinning is "
          "skipped where there are not more cores than workers."),
      Count(KEY(workers.process_copy_threads), 1, 64,
            "Threads that copy plain process memory (process_vm_readv and writev)."),
      Count(KEY(workers.control_threads), 1, 256,
            "Threads for control calls that may wait, such as connecting to a peer."),
  };
}

std::vector<ConfigKey> PoolKeys() {
  return {
      Size(KEY(pools.host.arena_bytes), 2 * kMiB, 64 * kGiB,
           "Size of one shared-memory arena of the host pool; rounded up to whole huge pages. A "
           "larger buffer gets an arena of its own."),
      Size(KEY(pools.host.max_bytes), 2 * kMiB, 16 * kTiB,
           "Most memory that all arenas of the host pool take together."),
      Choice(
          KEY(pools.host.huge_pages),
          std::vector<std::pair<std::string, HugePages>>{
              {"off", HugePages::kOff}, {"try", HugePages::kTry}, {"require", HugePages::kRequire}},
          "Whether arenas use 2 MiB huge pages. try: where free ones are left, with a counted "
          "fall-back to ordinary pages; require: an allocation fails without them."),
      Size(KEY(pools.relay.bytes), 1 * kMiB, 64 * kGiB,
           "Memory of the relay pool, through which data goes that the daemon cannot reach "
           "directly."),
      Size(KEY(pools.relay.slot_bytes), 64 * kKiB, 64 * kMiB,
           "Size of one piece of the relay pool."),
  };
}

std::vector<ConfigKey> DeviceKeys() {
  return {
      TextList(KEY(devices.backends), "host | sim, each at most once", 1, 8, CheckBackend,
               "Device backends. host: memory of the node; sim: NPUs imitated on the CPU."),
      Count(KEY(devices.sim.count), 1, 64, "How many NPUs the sim backend imitates."),
      Size(KEY(devices.sim.memory_bytes), 1 * kMiB, 1 * kTiB,
           "Memory of each imitated NPU. Pages are taken when they are first used."),
      Text(KEY(devices.sim.product), "letters, digits, '_', '-', '.'; at most 64", CheckProduct,
           "Product name that an imitated NPU reports."),
      Flag(KEY(devices.sim.product_limits),
           "Refuse what the product above refuses (protocols, memory types, limits), so that a "
           "program can be tried here for such a node. See docs/products.md."),
      Size(KEY(devices.sim.copy_bandwidth), 0, 16 * kTiB,
           "Bytes per second of an imitated copy engine. 0: as fast as the CPU copies."),
      Choice(KEY(devices.sim.place),
             std::vector<std::pair<std::string, SimPlace>>{{"daemon", SimPlace::kDaemon},
                                                           {"client", SimPlace::kClient}},
             "Who copies from and to imitated device memory. client: the process that owns it, by "
             "command and through the relay pool, like a device that the daemon cannot reach."),
  };
}

std::vector<ConfigKey> TcpKeys() {
  return {
      Count(KEY(tcp.lanes), 1, 16, "TCP connections per pair of nodes that carry data."),
      Size(KEY(tcp.stripe_bytes), 64 * kKiB, 16 * kMiB,
           "Size of the pieces into which a transfer is cut; idle lanes take the next piece."),
      Count(KEY(tcp.window_stripes), 1, 256,
            "Pieces that one lane has under way before it waits for an acknowledgement."),
      Size(KEY(tcp.socket_buffer_bytes), 0, 256 * kMiB,
           "Send and receive buffer of a lane's socket. 0: the kernel's own tuning."),
      Text(
          KEY(tcp.congestion_control),
          "a name such as cubic, of at most 15 letters, digits, '_', '-'; or \"\"",
          CheckCongestionControl,
          "Congestion control of the lanes. Empty: the kernel's default, and on loopback reno. One "
          "that paces, such as bbr, halves the speed of transfers that come in bursts."),
      Size(
          KEY(tcp.zero_copy_bytes), 0, 16 * kMiB,
          "WRITEs take blocks of shared memory that are at least as large straight from its pages, "
          "without a copy, unless the peer is on loopback. 0: never. It spares processor time "
          "where a "
          "network card does the sending, and costs some where everything stays in one machine."),
      TextList(KEY(tcp.interfaces), "names of network interfaces, at most 16", 0, 16,
               CheckInterface,
               "Interfaces through which lanes leave, in turn; peers must answer on each of them. "
               "Empty: "
               "the routing table decides."),
      Duration(KEY(tcp.connect_timeout), milliseconds(100), minutes(2),
               "How long one attempt to connect to a peer may take."),
      Duration(KEY(tcp.keepalive_interval), milliseconds(100), minutes(1),
               "Time between two signs of life on a quiet link."),
      Duration(KEY(tcp.keepalive_timeout), milliseconds(300), minutes(10),
               "Silence after which a peer counts as dead and its transfers fail. At least twice "
               "tcp.keepalive_interval."),
      Size(KEY(local.split_bytes), 64 * kKiB, 1 * kTiB,
           "Transfers within the node that are larger are copied by several threads."),
      Size(KEY(local.chunk_bytes), 64 * kKiB, 1 * kGiB,
           "Size of the pieces that the threads take in turn."),
      Choice(KEY(local.direct),
             std::vector<std::pair<std::string, DirectCopies>>{{"same_uid", DirectCopies::kSameUid},
                                                               {"off", DirectCopies::kOff}},
             "Whether client processes copy small synchronous transfers by themselves. same_uid: "
             "between processes of one user, which then map each other's registered memory."),
      Size(KEY(local.direct_max_bytes), 1, 1 * kGiB,
           "Transfers that are larger go to the daemon, which copies them with several threads."),
      Duration(KEY(local.direct_patience), milliseconds(100), minutes(10),
               "How long taking memory back waits for a client that is stopped in the middle of a "
               "copy; then deregistering the memory fails and names it."),
  };
}

std::vector<ConfigKey> RdmaKeys() {
  return {
      TextList(KEY(rdma.devices), "names such as mlx5_0 or mlx5_0:1 (with the port), at most 16", 0,
               16, CheckRdmaDevice, "RDMA devices that are used. Empty: all."),
      TextList(
          KEY(rdma.interfaces), "names of network interfaces, at most 16", 0, 16, CheckInterface,
          "Network interfaces whose RDMA devices are used. Empty: all. Between several, those "
          "in one subnet with the peer's come first, then the one that the routing table uses."),
      Text(KEY(rdma.gid_index), "auto, or 0..255", CheckGidIndex,
           "Entry of the device's GID table. auto: RoCE v2 before v1, IPv4 before IPv6, never a "
           "link-local address."),
      Flag(KEY(rdma.allow_link_local), "Use link-local addresses where there are no others."),
      Choice(KEY(rdma.mtu),
             std::vector<std::pair<std::string, uint32_t>>{{"auto", 0},
                                                           {"256", 256},
                                                           {"512", 512},
                                                           {"1024", 1024},
                                                           {"2048", 2048},
                                                           {"4096", 4096}},
             "Bytes per packet. auto: what the port has. The smaller one of both nodes counts."),
      Count(KEY(rdma.lanes), 1, 16,
            "Queue pairs per pair of nodes, spread over the ports that can reach each other."),
      Count(KEY(rdma.queue_depth), 16, 4096,
            "Work requests that one queue pair has under way; less where the device has less."),
      Size(KEY(rdma.message_bytes), 64 * kKiB, 1 * kGiB,
           "Size of the pieces into which a transfer is cut."),
      Size(KEY(rdma.registration_bytes), 2 * kMiB, 1 * kTiB,
           "Size of the pieces in which memory is registered with a device; less where the device "
           "allows less."),
      MultipleOf4(KEY(rdma.traffic_class), 0, 255,
                  "Traffic class of engines without the option RdmaTrafficClass."),
      Count(KEY(rdma.service_level), 0, 7,
            "Service level of engines without the option RdmaServiceLevel."),
      Count(KEY(rdma.retry_count), 0, 7,
            "How often a packet is sent again before its queue pair counts as broken; Soft-RoCE "
            "takes 7 for \"for ever\"."),
      Count(KEY(rdma.ack_timeout), 1, 31,
            "Time until a packet is sent again: 4.096 us times two to the power of this."),
      Duration(KEY(rdma.fallback_after), milliseconds(10), minutes(10),
               "Time without a usable queue pair after which transfers go over TCP, or fail where "
               "node.transports has no tcp."),
  };
}

std::vector<ConfigKey> BatchingKeys() {
  return {
      Count(KEY(batching.window_us), 0, 100'000,
            "Microseconds for which a transfer to another node that is smaller than half of "
            "batching.max_bytes waits for others of its engine and direction, to go with them as "
            "one. 0: it does not wait. An engine sets its own with hixld.batching.window_us (and "
            "the others alike) in GlobalResourceConfig."),
      Count(KEY(batching.max_requests), 2, 4096, "Transfers that go as one, at most."),
      Size(KEY(batching.max_bytes), 4096, 16 * kMiB, "Bytes that go as one, at most."),
  };
}

std::vector<ConfigKey> RingKeys() {
  return {
      PowerOfTwo(
          KEY(rings.entries), 16, 65'536,
          "Batches that one client has handed over and the daemon has not yet taken out; more "
          "wait in the client."),
      Count(KEY(rings.slots), 16, 65'536,
            "Transfers of one client that are under way or whose end was not asked for yet."),
      Count(
          KEY(rings.arena_descriptors), 1024, 1'048'576,
          "Blocks of large batches that are on their way to the daemon; larger batches are handed "
          "over in parts."),
  };
}

std::vector<ConfigKey> LimitKeys() {
  return {
      Count(KEY(limits.max_sessions), 1, 65'536, "Client processes."),
      Count(KEY(limits.max_sessions_per_uid), 1, 65'536, "Client processes of one user."),
      Count(KEY(limits.max_engines_per_session), 1, 4096, "Engines of one client process."),
      Count(KEY(limits.max_regions_per_session), 1, 16'777'216,
            "Registered regions of one client process."),
      Count(KEY(limits.max_regions_per_call), 1, 1'048'576, "Regions in one registering call."),
      Count(KEY(limits.max_memory_handles_per_session), 1, 65'536,
            "Memory descriptors that one client process has handed over. Each takes a file "
            "descriptor of the daemon."),
      Count(KEY(limits.max_buffers_per_session), 1, 1'048'576,
            "Pool buffers of one client process."),
      Size(KEY(limits.max_buffer_bytes_per_session), 1 * kMiB, 16 * kTiB,
           "Pool memory of one client process."),
      Count(KEY(limits.max_channels_per_engine), 1, 65'536, "Connections of one engine."),
      Count(KEY(limits.max_transfers_per_engine), 1, 1'048'576,
            "Transfers of one engine that are under way or whose end was not asked for yet."),
      Count(KEY(limits.max_descriptors_per_transfer), 1, 16'777'216, "Blocks in one transfer."),
      Count(KEY(limits.max_notifies_per_channel), 1, 1'048'576,
            "Notifies of one sender that its receiver has not fetched yet."),
      Size(KEY(limits.max_notify_bytes_per_engine), 64 * kKiB, 16 * kGiB,
           "Notifies of all senders that one engine has not fetched yet; each counts 128 bytes "
           "beside its text."),
      Count(KEY(limits.max_links), 1, 65'536, "Peer nodes."),
      Size(KEY(limits.max_rpc_message_bytes), 1 * kMiB, 1 * kGiB,
           "Size of one gRPC message. A block of a transfer takes 24 bytes."),
  };
}

std::vector<ConfigKey> TelemetryKeys() {
  return {
      Choice(KEY(log.level),
             std::vector<std::pair<std::string, LogLevel>>{{"debug", LogLevel::kDebug},
                                                           {"info", LogLevel::kInfo},
                                                           {"warn", LogLevel::kWarn},
                                                           {"error", LogLevel::kError}},
             "The least important messages that are logged, on standard error."),
      Choice(KEY(log.format),
             std::vector<std::pair<std::string, LogFormat>>{{"text", LogFormat::kText},
                                                            {"json", LogFormat::kJson}},
             "text: a line for people; json: an object per line for programs."),
      Text(KEY(telemetry.metrics_address), "IP:PORT, or \"\"", CheckListenAddress,
           "Where Prometheus reads metrics over HTTP (/metrics), such as 127.0.0.1:9400; port 0 "
           "takes a free one, which the log names. Empty: nowhere."),
  };
}

#undef KEY

std::vector<ConfigKey> MakeKeys() {
  std::vector<ConfigKey> keys = {Count(
      "version", [](Config & c) -> auto& { return c.version; }, 1, 1,
      "Format of this file. Required.")};
  for (auto* group : {&SocketKeys, &NodeKeys, &WorkerKeys, &PoolKeys, &DeviceKeys, &TcpKeys,
                      &RdmaKeys, &BatchingKeys, &RingKeys, &LimitKeys, &TelemetryKeys}) {
    for (ConfigKey& key : (*group)()) keys.push_back(std::move(key));
  }
  return keys;
}

// Edits (insert, delete, replace a character) that turn one text into the other.
size_t EditDistance(absl::string_view a, absl::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replace = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replace});
    }
  }
  return row[b.size()];
}

absl::string_view SectionOf(absl::string_view key) {
  const size_t dot = key.rfind('.');
  return dot == absl::string_view::npos ? absl::string_view() : key.substr(0, dot);
}

}  // namespace

const std::vector<ConfigKey>& ConfigKeys() {
  static const auto* const keys = new std::vector<ConfigKey>(MakeKeys());
  return *keys;
}

const std::vector<ConfigSection>& ConfigSections() {
  static const auto* const sections = new std::vector<ConfigSection>{
      {"socket", "Where clients reach the daemon."},
      {"node", "How other nodes reach this one."},
      {"security", "Who may reach the daemon over the network."},
      {"workers", "Threads."},
      {"pools", "Memory that the daemon owns."},
      {"pools.host", "Buffers for clients, in shared memory."},
      {"pools.relay", "Relay for memory that the daemon cannot reach directly."},
      {"devices", "Accelerators."},
      {"devices.sim", "NPUs imitated on the CPU."},
      {"tcp", "The TCP transport between nodes."},
      {"local", "Copies within the node."},
      {"rdma", "The RDMA transport between nodes: RoCE and InfiniBand."},
      {"batching", "Merging of tiny transfers between nodes."},
      {"rings", "Shared-memory rings between client and daemon; one set per client process."},
      {"limits", "Reaching one is RESOURCE_EXHAUSTED; the error names the key."},
      {"log", "Messages of the daemon."},
      {"telemetry", "Metrics."},
  };
  return *sections;
}

const ConfigKey* FindConfigKey(absl::string_view key) {
  for (const ConfigKey& candidate : ConfigKeys()) {
    if (candidate.key == key) return &candidate;
  }
  return nullptr;
}

bool IsConfigSection(absl::string_view path) {
  for (const ConfigSection& section : ConfigSections()) {
    if (section.path == path) return true;
  }
  return false;
}

std::string NearestConfigKey(absl::string_view key) {
  // Beyond this no typing error makes one key of the other; the bound also limits the work.
  constexpr size_t kMaxLength = 256;
  key = key.substr(0, kMaxLength);
  std::string nearest;
  size_t least = std::numeric_limits<size_t>::max();
  for (const ConfigKey& candidate : ConfigKeys()) {
    size_t distance = EditDistance(key, candidate.key);
    // The right name in the wrong section.
    if (absl::EndsWith(candidate.key, absl::StrCat(".", key))) distance = 1;
    if (distance >= least) continue;
    least = distance;
    nearest = candidate.key;
  }
  return nearest;
}

std::vector<std::string> ConfigKeysBeside(absl::string_view key) {
  absl::string_view section = SectionOf(key);
  while (!section.empty() && !IsConfigSection(section)) section = SectionOf(section);
  std::vector<std::string> beside;
  if (section.empty()) {
    beside.push_back("version");
    for (const ConfigSection& top : ConfigSections()) {
      if (SectionOf(top.path).empty()) beside.push_back(top.path);
    }
    return beside;
  }
  for (const ConfigKey& candidate : ConfigKeys()) {
    if (absl::StartsWith(candidate.key, absl::StrCat(section, "."))) {
      beside.push_back(candidate.key);
    }
  }
  return beside;
}

}  // namespace hixld
