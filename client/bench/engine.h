// One side's engine and its memory, through the public client library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/bench/options.h"
#include "hixl/hixl.h"
#include "hixl/hixl_ext.h"
#include "proto/base/fd.h"

namespace hixld::bench {

// OK for SUCCESS; else `what` and this thread's last error text, with the same API code.
absl::Status FromHixl(hixl::Status status, absl::string_view what);

// Makes the client library use this daemon. Before the process's first engine.
void UseSocket(const std::string& path);
// How the engines that are made from now on transfer; nothing: as the environment says.
void UsePath(std::optional<Path> path);

class Engine {
 public:
  // `listen`: peers may connect; on a free port where options.engine names none.
  static absl::StatusOr<std::unique_ptr<Engine>> Create(const EngineOptions& options, bool listen);

  hixl::Hixl& hixl() { return hixl_; }
  // The name under which peers reach it.
  const std::string& id() const { return id_; }

 private:
  hixl::Hixl hixl_;
  std::string id_;
};

// A piece of memory of one kind, every page of it touched. Registered on request; deregistered and
// freed at the end. The engine outlives it.
class Memory {
 public:
  static absl::StatusOr<std::unique_ptr<Memory>> Create(Engine& engine, MemoryKind kind,
                                                        size_t size);
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  absl::Status Register();
  uintptr_t address() const { return address_; }
  // nullptr for device memory that the host cannot touch.
  std::byte* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  Memory(Engine& engine, MemoryKind kind, size_t size)
      : engine_(engine), kind_(kind), size_(size) {}
  absl::Status Allocate();

  Engine& engine_;
  const MemoryKind kind_;
  const size_t size_;
  hixl::Buffer buffer_;
  UniqueFd memfd_;
  Mapping mapping_;
  uintptr_t address_ = 0;
  std::byte* data_ = nullptr;
  hixl::MemHandle handle_ = nullptr;
};

}  // namespace hixld::bench
