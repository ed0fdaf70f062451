// hixl.v1.AdminService: what operators see.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "daemon/device/backend.h"
#include "daemon/session/session.h"

namespace grpc {
class Service;
}

namespace hixld {

class EngineRegistry;
class LinkManager;
class TransferLog;

struct PoolDescription {
  std::string name;  // "host", "relay", "sim:0"
  uint64_t capacity_bytes = 0;
  uint64_t arenas = 0;
  uint64_t used_bytes = 0;
  uint64_t buffers = 0;
  bool huge_pages = false;
};

// Where the answers come from. Everything outlives the service.
struct AdminSources {
  // Facts that do not change while the daemon runs.
  std::string version;
  std::string node_id;  // hex
  std::string socket_path;
  std::string config_path;
  bool private_daemon = false;
  uint32_t workers = 0;
  std::string security;
  std::string tcp_congestion_control;  // empty: the kernel's default
  int64_t started_ns = 0;

  SessionRegistry* sessions = nullptr;
  EngineRegistry* engines = nullptr;
  LinkManager* links = nullptr;
  TransferLog* transfers = nullptr;
  std::function<std::vector<DeviceDescription>()> devices;
  std::function<std::vector<PoolDescription>()> pools;
  std::function<uint64_t()> huge_page_fallbacks;
};

std::unique_ptr<grpc::Service> MakeAdminService(AdminSources sources);

}  // namespace hixld
