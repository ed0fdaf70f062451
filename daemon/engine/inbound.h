// A channel from another daemon to one of our engines: the target's side.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "daemon/engine/engine.h"

namespace hixld {

class Engine::Inbound : public InboundChannel, public std::enable_shared_from_this<Inbound> {
 public:
  Inbound(std::shared_ptr<Engine> engine, InboundRequest request,
          std::shared_ptr<InboundHandle> handle)
      : engine_(std::move(engine)), request_(std::move(request)), handle_(std::move(handle)) {}

  absl::Status Resolve(uint64_t address, uint64_t length,
                       std::vector<TargetResolver::Part>* parts) override;
  std::shared_ptr<const RegionSnapshot> Regions() override { return engine_->Regions(); }
  void OnClosed(absl::string_view reason) override;

  const InboundRequest& request() const { return request_; }
  InboundHandle& handle() { return *handle_; }

 private:
  const std::shared_ptr<Engine> engine_;
  const InboundRequest request_;
  const std::shared_ptr<InboundHandle> handle_;
};

}  // namespace hixld
