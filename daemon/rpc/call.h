// One unary call in flight: its reactor, and what happens when its caller goes away.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <memory>
#include <utility>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "daemon/rpc/error.h"
#include "proto/base/mutex.h"

namespace hixld {

// Runs a hook at most once, when the caller cancels; whichever of hook and cancellation comes
// second. Outlives the call, so that the hook may be set after the call has been answered.
class CancelHook {
 public:
  void Set(absl::AnyInvocable<void()> hook) {
    {
      MutexLock lock(&mutex_);
      if (!cancelled_) {
        hook_ = std::move(hook);
        return;
      }
    }
    hook();
  }
  void Cancel() {
    absl::AnyInvocable<void()> hook;
    {
      MutexLock lock(&mutex_);
      cancelled_ = true;
      hook = std::move(hook_);
      hook_ = nullptr;
    }
    if (hook) hook();
  }
  void Clear() {
    MutexLock lock(&mutex_);
    hook_ = nullptr;
  }

 private:
  Mutex mutex_;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  absl::AnyInvocable<void()> hook_ ABSL_GUARDED_BY(mutex_);
};

// Lives until gRPC is done with it; after Finish nobody may touch it.
class CallReactor final : public grpc::ServerUnaryReactor {
 public:
  const std::shared_ptr<CancelHook>& cancel_hook() const { return cancel_hook_; }
  void Reply(const absl::Status& status) { Finish(ToGrpcStatus(status)); }

 private:
  void OnCancel() override { cancel_hook_->Cancel(); }
  void OnDone() override {
    cancel_hook_->Clear();
    delete this;
  }

  const std::shared_ptr<CancelHook> cancel_hook_ = std::make_shared<CancelHook>();
};

}  // namespace hixld
