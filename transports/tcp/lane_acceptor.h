// Sockets that have not said yet which link they belong to.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/functional/any_invocable.h"
#include "absl/strings/string_view.h"
#include "proto/base/fd.h"
#include "transports/tcp/context.h"

namespace hixld {

// Reads the hello of each socket; closes those that take too long, say nonsense, or are too many.
class LaneAcceptor : public std::enable_shared_from_this<LaneAcceptor> {
 public:
  struct Hello {
    uint64_t link_id = 0;
    uint32_t lane = 0;
    uint32_t generation = 0;
    std::string proof;
  };
  // Called on a worker with a well-formed hello; the proof is not checked yet.
  using OnHello = absl::AnyInvocable<void(UniqueFd, Hello) const>;

  LaneAcceptor(std::shared_ptr<TcpContext> context, OnHello on_hello);
  // Any thread.
  void Accept(UniqueFd socket);

 private:
  struct Pending;
  void Watch(Loop* loop, UniqueFd socket);
  void OnReadable(const std::shared_ptr<Pending>& pending);
  UniqueFd Release(const std::shared_ptr<Pending>& pending);
  void Refuse(const std::shared_ptr<Pending>& pending);

  const std::shared_ptr<TcpContext> context_;
  const OnHello on_hello_;
  std::atomic<uint32_t> waiting_{0};
};

}  // namespace hixld
