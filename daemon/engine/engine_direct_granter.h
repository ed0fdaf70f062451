// Grants direct copies for the engines of all sessions.
#pragma once

#include <utility>

#include "daemon/direct/direct_granter.h"
#include "daemon/engine/engine_registry.h"
#include "proto/base/status.h"

namespace hixld {

class EngineDirectGranter : public DirectGranter {
 public:
  // `engines` outlives it.
  EngineDirectGranter(EngineRegistry* engines, uint64_t max_bytes)
      : engines_(engines), max_bytes_(max_bytes) {}

  uint64_t max_bytes() const override { return max_bytes_; }
  absl::StatusOr<DirectGrant> Grant(uint64_t session_id, uint64_t engine_handle,
                                    uint64_t channel_id,
                                    std::shared_ptr<DirectCopier> copier) override {
    HIXLD_ASSIGN_OR_RETURN(const std::shared_ptr<Engine> engine,
                           engines_->Find(session_id, engine_handle));
    return engine->GrantDirect(channel_id, std::move(copier));
  }

 private:
  EngineRegistry* const engines_;
  const uint64_t max_bytes_;
};

}  // namespace hixld
