// What hixld offers beyond the HIXL API: buffers from the daemon's pool, memory that is shared by
// descriptor, batches as arrays, registration in bulk, and the text of the last error.
//
// Structs may grow inside their `reserved` bytes; leave those zero.
#ifndef HIXL_HIXL_EXT_H_
#define HIXL_HIXL_EXT_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "hixl/hixl.h"
#include "hixl/hixl_types.h"

namespace hixl {

// Why a call failed. Every string may be empty.
struct ErrorInfo {
  Status code = SUCCESS;
  AscendString message;
  AscendString object;     // the thing the error is about
  AscendString limit;      // the limit that was reached
  AscendString option;     // the option or configuration key that changes it
  AscendString allowed;    // the allowed values
  AscendString text_code;  // such as "HIXL_001002"
};

struct InitializeExtArgs {
  // Listen on a free port although local_engine has none; HixlExt::EngineId then says which.
  bool listen_on_any_port = false;
  // Logical device; -1 = from ASCEND_DEVICE_ID, else device 0.
  int32_t device_id = -1;
  uint8_t reserved[120] = {};
};

// A buffer in the daemon's pool, mapped into this process. Registering a range inside it lets the
// daemon reach the memory without any copy. Movable; freed with the object. The engine that it
// came from may be finalised earlier. Distinct objects may be used from distinct threads.
class ASCEND_FUNC_VISIBILITY Buffer {
 public:
  Buffer();
  ~Buffer();
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  // False when default-constructed, moved from or freed.
  bool valid() const;
  // Start address, to be used in MemDesc: the mapping's, or the device's where the host cannot
  // map the memory. 0 when not valid.
  uintptr_t address() const;
  // As address(), for memory that the host can touch; otherwise nullptr.
  void* data() const;
  // Bytes that were asked for.
  size_t size() const;
  MemType type() const;
  // Unmaps and gives the memory back. Deregister it first.
  void Free();

 private:
  friend class HixlExt;
  class State;
  std::unique_ptr<State> state_;
};

// A batch as three arrays of `count` entries: entry i moves lengths[i] bytes between
// local_addresses[i] and remote_addresses[i]. The arrays are read during the call only.
struct TransferArrays {
  const uint64_t* local_addresses = nullptr;
  const uint64_t* remote_addresses = nullptr;
  const uint64_t* lengths = nullptr;
  size_t count = 0;
};

// Blocks of one size at equal distances, as one layer of a paged KV cache has them: block i is the
// `block_bytes` bytes at base + i * stride. Nothing is registered by it, so it never goes stale;
// the blocks that are moved must lie in registered memory, like every range.
struct BlockTable {
  uint64_t base = 0;         // address of block 0, above 0
  uint64_t stride = 0;       // bytes from block to block, block_bytes and more
  uint64_t block_bytes = 0;  // 1 and more; the same on both sides
  uint32_t count = 0;        // blocks, 1 and more; the last one ends below 2^64
};

// A batch as block indices: for each t in [0, table_count) and each i in [0, block_count), block
// local_blocks[i] of local_tables[t] and block remote_blocks[i] of remote_tables[t]. Tables are,
// for instance, the layers of a cache. All arrays are read during the call only.
struct BlockBatch {
  const BlockTable* local_tables = nullptr;
  const BlockTable* remote_tables = nullptr;
  size_t table_count = 0;  // 1..65536
  const uint32_t* local_blocks = nullptr;
  const uint32_t* remote_blocks = nullptr;
  size_t block_count = 0;
};

class ASCEND_FUNC_VISIBILITY HixlExt {
 public:
  // Hixl::Initialize with more to choose.
  static Status Initialize(Hixl& engine, const AscendString& local_engine,
                           const std::map<AscendString, AscendString>& options,
                           const InitializeExtArgs& args);

  // Whether this process has initialised the engine and not finalised it. No error is recorded.
  static bool IsInitialized(const Hixl& engine);

  // The name under which peers reach the engine: local_engine, or with the port that was found.
  static Status EngineId(Hixl& engine, AscendString& engine_id);

  // Takes `length` bytes (> 0) from the pool of the engine's daemon. RESOURCE_EXHAUSTED: the pool
  // has no such piece free.
  static Status AllocateBuffer(Hixl& engine, size_t length, MemType type, Buffer& buffer);

  // RegisterMem for many ranges in one round trip. Either all are registered or none; `handles`
  // is written on SUCCESS only, one per range, in order.
  static Status RegisterMemBatch(Hixl& engine, const std::vector<MemDesc>& ranges, MemType type,
                                 std::vector<MemHandle>& handles);
  // DeregisterMem for many handles in one round trip; a null handle refuses the whole call.
  static Status DeregisterMemBatch(Hixl& engine, const std::vector<MemHandle>& handles);

  // RegisterMem for a range that maps bytes [offset, offset + mem.len) of `memfd`: the daemon maps
  // the same pages. The memfd must be sealed against shrinking. The descriptor is not kept.
  static Status RegisterMemfd(Hixl& engine, const MemDesc& mem, MemType type, int memfd,
                              uint64_t offset, MemHandle& handle);

  // Page-aligned zeroed memory of this process that needs no engine; a daemon maps what is
  // registered of it. `*memory` is written on SUCCESS only. PARAM_INVALID: length 0 or a null
  // `memory`. UNSUPPORTED: MEM_DEVICE (see AllocateBuffer). RESOURCE_EXHAUSTED: none is left.
  static Status MallocMem(MemType type, size_t length, void** memory);
  // PARAM_INVALID: not from MallocMem, or freed before. Deregister it first.
  static Status FreeMem(void* memory);
  // UNSUPPORTED: handles that other processes import need fabric memory of an A3 node.
  // PARAM_INVALID: not from MallocMem.
  static Status ExportMem(const void* memory);

  static Status TransferSync(Hixl& engine, const AscendString& remote_engine, TransferOp operation,
                             const TransferArrays& arrays, int32_t timeout_in_millis = 1000);
  static Status TransferAsync(Hixl& engine, const AscendString& remote_engine, TransferOp operation,
                              const TransferArrays& arrays, const TransferArgs& optional_args,
                              TransferReq& req);

  // The same with a batch of blocks: 8 bytes per block go to the daemon in place of 24, and nothing
  // is built per block. PARAM_INVALID names the table or the index that does not fit.
  static Status TransferSync(Hixl& engine, const AscendString& remote_engine, TransferOp operation,
                             const BlockBatch& blocks, int32_t timeout_in_millis = 1000);
  static Status TransferAsync(Hixl& engine, const AscendString& remote_engine, TransferOp operation,
                              const BlockBatch& blocks, const TransferArgs& optional_args,
                              TransferReq& req);

  // Why the last failing call of this thread failed; code SUCCESS if none has.
  static ErrorInfo LastError();
  // Its message with every known detail, in one line. Valid until this thread's next failure.
  static const char* LastErrorText();

  // Messages on stderr from this level on: "DEBUG", "INFO", "WARN" or "ERROR". The start value
  // comes from HIXL_LOG_LEVEL, else it is WARN.
  static Status SetLogLevel(const AscendString& level);

  // "major.minor.patch".
  static const char* Version();
};

}  // namespace hixl

#endif  // HIXL_HIXL_EXT_H_
