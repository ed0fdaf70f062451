// Settings of the RDMA transport (configuration keys rdma.*).
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <string>

#include "proto/base/clock.h"
#include "transports/rdma/selection.h"

namespace hixld {

// Something that an operator should know; called on any thread.
struct RdmaEvent {
  enum class Severity : uint8_t { kInfo, kWarning };
  Severity severity = Severity::kInfo;
  std::string device;
  uint32_t port = 0;  // 0 = the whole device
  std::string text;
};

// How the network is to treat a lane's packets.
struct RdmaClass {
  uint8_t traffic_class = 132;  // of the global routing header; 0..255
  uint8_t service_level = 4;    // 0..7
  auto operator<=>(const RdmaClass&) const = default;
};

struct RdmaOptions {
  rdma::SelectionRules selection;
  // Queue pairs per link, spread over the ways between the two nodes.
  uint32_t lanes = 2;
  uint32_t queue_depth = 256;
  // Larger pieces are cut.
  uint64_t message_bytes = 1 << 20;
  // Bytes under way per lane at most: bounds how long a fence takes.
  uint64_t inflight_bytes = 16 << 20;
  uint32_t inline_bytes = 128;
  uint8_t retry_count = 6;   // 0..7; Soft-RoCE takes 7 for "for ever"
  uint8_t ack_timeout = 14;  // 4.096 us * 2^n; 0 = for ever
  // Local memory is registered in pieces of at most this.
  uint64_t registration_bytes = 1 << 30;
  // No usable port yet is no error: one that comes later is used then.
  bool wait_for_ports = false;
  uint32_t max_queued_transfers = 65536;
  int64_t open_timeout_ns = 5 * kNanosPerSecond;
  int64_t reconnect_min_ns = 50 * kNanosPerMilli;
  int64_t reconnect_max_ns = 5 * kNanosPerSecond;
  // With no lane for this long, transfers go over the fall-back or fail.
  int64_t give_up_ns = 3 * kNanosPerSecond;
  // What is under way of a cancelled transfer may still end by itself for this long before its
  // lanes are flushed, which delays the other transfers on them.
  int64_t cancel_grace_ns = 5 * kNanosPerMilli;
  std::function<void(const RdmaEvent&)> on_event;
};

}  // namespace hixld
