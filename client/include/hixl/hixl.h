// The HIXL API: one-sided reads and writes between the memory of two engines.
//
// Order of use: Initialize, RegisterMem, Connect, transfers, Disconnect, DeregisterMem, Finalize.
// Every call but Finalize may come from any thread at any time. Before Initialize and after
// Finalize every call returns FAILED. HixlExt::LastError (hixl/hixl_ext.h) says why a call
// failed.
#ifndef HIXL_HIXL_H_
#define HIXL_HIXL_H_

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "hixl/hixl_types.h"

namespace hixl {

class HixlExt;

class ASCEND_FUNC_VISIBILITY Hixl {
 public:
  Hixl();
  // Finalises.
  ~Hixl();

  // Makes this object an engine. `local_engine` is "a.b.c.d:port" or "[v6]:port" (the engine
  // listens there) or the same without port or with a port of 0 or below (client only); it is
  // also the name by which peers connect. `options`: see docs/api.md.
  // PARAM_INVALID: a bad option or address. FAILED: the address cannot be listened on, the
  // device or the daemon is not there. The object may then be initialised again. On an
  // initialised object the options are checked and nothing else happens.
  Status Initialize(const AscendString& local_engine,
                    const std::map<AscendString, AscendString>& options);

  // Releases everything. Not concurrent with any other call on this object. Harmless when there
  // is nothing to finalise.
  void Finalize();

  // Makes [mem.addr, mem.addr + mem.len) usable in transfers, by us and by connected peers. The
  // memory is not touched. The same range and type again gives the same handle.
  // PARAM_INVALID: addr 0, len 0, overflow, or a partial overlap with a range of the same type.
  Status RegisterMem(const MemDesc& mem, MemType type, MemHandle& mem_handle);

  // Null is PARAM_INVALID, an unknown handle SUCCESS. With engines that take LocalCommRes 1.3,
  // protocol_desc or fabric memory: FAILED while this engine has a link.
  Status DeregisterMem(MemHandle mem_handle);

  // Links this engine to a peer, one way: we may then read and write the peer's registered
  // memory. ALREADY_CONNECTED, FAILED (nobody listens), TIMEOUT, PARAM_INVALID (timeout <= 0,
  // our own name, a bad address).
  Status Connect(const AscendString& remote_engine, int32_t timeout_in_millis = 1000);

  // Drops the link and our outstanding requests on it; SUCCESS even if the peer is gone.
  // NOT_CONNECTED without a link.
  Status Disconnect(const AscendString& remote_engine, int32_t timeout_in_millis = 1000);

  // The same in the background; the outcome is told by GetAsyncConnectStatus. Calls for one peer
  // run in order, for different peers in parallel. RESOURCE_EXHAUSTED: the queue is full.
  Status ConnectAsync(const AscendString& remote_engine, int32_t timeout_in_millis = 1000);
  Status DisconnectAsync(const AscendString& remote_engine, int32_t timeout_in_millis = 1000);
  Status GetAsyncConnectStatus(const AscendString& remote_engine, AsyncConnectStatus& status);
  // Peers in state NOT_CONNECT are left out.
  Status GetAsyncConnectStatus(std::map<AscendString, AsyncConnectStatus>& statuses);

  // Moves every piece and waits for the last. TIMEOUT or FAILED: the target ranges hold an
  // unknown mix and nothing lands in them afterwards.
  Status TransferSync(const AscendString& remote_engine, TransferOp operation,
                      const std::vector<TransferOpDesc>& op_descs,
                      int32_t timeout_in_millis = 1000);

  // Starts the same and returns; `req` is written only on SUCCESS.
  Status TransferAsync(const AscendString& remote_engine, TransferOp operation,
                       const std::vector<TransferOpDesc>& op_descs,
                       const TransferArgs& optional_args, TransferReq& req);

  // COMPLETED and FAILED are told once and release the request; after that, and for an unknown
  // request, the result is PARAM_INVALID and the status FAILED.
  Status GetTransferStatus(const TransferReq& req, TransferStatus& status);

  // All outstanding requests in the order of submission, as `args` limits them. UNSUPPORTED with
  // engines that take neither LocalCommRes 1.3 nor protocol_desc.
  Status GetTransferStatus(const GetTransferStatusArgs& args, std::vector<TransferResult>& results);

  // Sends a short message over the link to a peer and waits until the peer has it.
  Status SendNotify(const AscendString& remote_engine, const NotifyDesc& notify,
                    int32_t timeout_in_millis = 1000);
  // Appends what has arrived since the last call.
  Status GetNotifies(std::vector<NotifyDesc>& notifies);

  // `value` becomes FEATURE_SUPPORTED or FEATURE_NOT_SUPPORTED. Needs no engine and no daemon.
  static Status GetCapability(FeatureType feature_type, int32_t& value);

 private:
  friend class HixlExt;
  class HixlImpl;
  std::unique_ptr<HixlImpl> impl_;
};

}  // namespace hixl

#endif  // HIXL_HIXL_H_
