// The daemon's gRPC service, as one session sees it. The only place that knows gRPC.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "proto/hixl/v1/engine.pb.h"

namespace hixld::client {

namespace v1 = hixl::v1;

// Largest message either way; a batch of 2.7 million pieces.
constexpr size_t kMaxMessageBytes = 64UL << 20;

// Thread-safe. Every call waits for its answer until `deadline` (MonotonicNanos; kNoDeadline =
// none). An answer that is an error comes back as the daemon's status with its details. When the
// daemon is gone or does not know the session any more the error satisfies IsSessionLost.
class Rpc {
 public:
  virtual ~Rpc() = default;

  static std::unique_ptr<Rpc> Create(const std::string& socket, const std::string& session_token);

  virtual absl::Status OpenEngine(const v1::OpenEngineRequest& request,
                                  v1::OpenEngineResponse* response, int64_t deadline) = 0;
  virtual absl::Status CloseEngine(const v1::CloseEngineRequest& request,
                                   v1::CloseEngineResponse* response, int64_t deadline) = 0;
  virtual absl::Status RegisterMemory(const v1::RegisterMemoryRequest& request,
                                      v1::RegisterMemoryResponse* response, int64_t deadline) = 0;
  virtual absl::Status DeregisterMemory(const v1::DeregisterMemoryRequest& request,
                                        v1::DeregisterMemoryResponse* response,
                                        int64_t deadline) = 0;
  virtual absl::Status AllocateBuffer(const v1::AllocateBufferRequest& request,
                                      v1::AllocateBufferResponse* response, int64_t deadline) = 0;
  virtual absl::Status FreeBuffer(const v1::FreeBufferRequest& request,
                                  v1::FreeBufferResponse* response, int64_t deadline) = 0;
  virtual absl::Status Connect(const v1::ConnectRequest& request, v1::ConnectResponse* response,
                               int64_t deadline) = 0;
  virtual absl::Status Disconnect(const v1::DisconnectRequest& request,
                                  v1::DisconnectResponse* response, int64_t deadline) = 0;
  virtual absl::Status Transfer(const v1::TransferRequest& request, v1::TransferResponse* response,
                                int64_t deadline) = 0;
  virtual absl::Status SubmitTransfer(const v1::SubmitTransferRequest& request,
                                      v1::SubmitTransferResponse* response, int64_t deadline) = 0;
  virtual absl::Status GetTransferStatus(const v1::GetTransferStatusRequest& request,
                                         v1::GetTransferStatusResponse* response,
                                         int64_t deadline) = 0;

  virtual absl::Status GetDevice(const v1::GetDeviceRequest& request,
                                 v1::GetDeviceResponse* response, int64_t deadline) = 0;
  virtual absl::Status SendNotify(const v1::SendNotifyRequest& request,
                                  v1::SendNotifyResponse* response, int64_t deadline) = 0;
  virtual absl::Status GetNotifies(const v1::GetNotifiesRequest& request,
                                   v1::GetNotifiesResponse* response, int64_t deadline) = 0;

  // Ends every call in progress, and every later one, as if the daemon were gone.
  virtual void Close() = 0;
};

// The session that the call belonged to does not exist any more; nothing else is wrong with it.
bool IsSessionLost(const absl::Status& status);
// Such a status; API code FAILED.
absl::Status SessionLost(absl::string_view reason);

}  // namespace hixld::client
