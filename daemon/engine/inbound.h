// A channel from another daemon to one of our engines: the target's side.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "daemon/engine/engine.h"

namespace hixld {

class Engine::Inbound : public InboundChannel, public std::enable_shared_from_this<Inbound> {
 public:
  Inbound(std::shared_ptr<Engine> engine, InboundRequest request,
          std::shared_ptr<InboundHandle> handle)
      : engine_(std::move(engine)),
        request_(std::move(request)),
        handle_(std::move(handle)),
        notify_source_(std::make_shared<NotifySource>(request_.initiator_engine)) {}

  absl::Status Resolve(uint64_t address, uint64_t length,
                       std::vector<TargetResolver::Part>* parts) override;
  std::shared_ptr<const RegionSnapshot> Regions() override { return engine_->Regions(); }
  EndpointSet Endpoints() override { return engine_->endpoints(); }
  absl::Status OnNotify(std::string name, std::string message) override;
  absl::StatusOr<uint64_t> OpenRelay(std::vector<AddressRange> ranges) override;
  void CloseRelay(uint64_t id) override;
  void OnClosed(absl::string_view reason) override;

  const InboundRequest& request() const { return request_; }
  InboundHandle& handle() { return *handle_; }
  uint64_t notifies() const { return notifies_.load(std::memory_order_relaxed); }

 private:
  RelayGrants::MakeAccess PlainMemory() const;
  absl::Status ResolveGranted(const std::shared_ptr<const RegionSnapshot>& regions,
                              const std::shared_ptr<const RegionSnapshot>& granted,
                              uint64_t address, uint64_t length,
                              std::vector<TargetResolver::Part>* parts) const;

  const std::shared_ptr<Engine> engine_;
  const InboundRequest request_;
  const std::shared_ptr<InboundHandle> handle_;
  const std::shared_ptr<NotifySource> notify_source_;
  std::atomic<uint64_t> notifies_{0};
  RelayGrants grants_;
};

}  // namespace hixld
