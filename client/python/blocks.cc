// BlockTable and transfers of blocks by index: what a paged KV cache needs, without an object or a
// loop per block.
#include <pybind11/stl.h>

#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "client/python/module.h"

namespace hixl_python {
namespace {

namespace py = pybind11;
using hixl::BlockTable;
using hixl::Hixl;
using hixl::HixlExt;
using hixl::Status;
using Tables = std::vector<BlockTable>;

constexpr char kTableDoc[] =
    "Blocks of one size at equal distances: block i is the block_bytes bytes at base + i * stride, "
    "for i below count.";
constexpr char kSyncDoc[] =
    "transfer_sync of whole blocks: block local_blocks[i] of each local table and block "
    "remote_blocks[i] of the remote table at the same place, for every i and every table (the "
    "layers of a cache). Indices are contiguous one-dimensional arrays of 32- or 64-bit integers.";

// One list of block indices as uint32, converted only when it is something else.
class Indices {
 public:
  Indices(const py::buffer& buffer, const std::string& name) : info_(buffer.request()) {
    const char kind = KindOf(info_);
    const bool integers = std::string("iIlLqQnN").find(kind) != std::string::npos;
    const bool compact = info_.ndim == 1 && (info_.size <= 1 || info_.strides[0] == info_.itemsize);
    if (!integers || !compact || (info_.itemsize != 4 && info_.itemsize != 8)) {
      throw py::type_error(name +
                           " must be a contiguous one-dimensional array of 32- or 64-bit integers "
                           "in this machine's byte order");
    }
    const bool is_signed = std::string("ilqn").find(kind) != std::string::npos;
    if (info_.itemsize == 8) {
      is_signed ? Convert<int64_t>(name) : Convert<uint64_t>(name);
    } else if (is_signed) {
      Convert<int32_t>(name);
    }
  }

  const uint32_t* data() const {
    return converted_.empty() ? static_cast<const uint32_t*>(info_.ptr) : converted_.data();
  }
  size_t size() const { return static_cast<size_t>(info_.size); }

 private:
  template <typename Integer>
  void Convert(const std::string& name) {
    const auto* const from = static_cast<const Integer*>(info_.ptr);
    converted_.resize(size());
    // One test for all, so that the loop stays a plain copy.
    uint64_t outside = 0;
    for (size_t i = 0; i < size(); ++i) {
      const auto index = static_cast<uint64_t>(static_cast<int64_t>(from[i]));
      outside |= index;
      converted_[i] = static_cast<uint32_t>(index);
    }
    if (outside > std::numeric_limits<uint32_t>::max()) Refuse(from, name);
  }

  template <typename Integer>
  void Refuse(const Integer* from, const std::string& name) const {
    for (size_t i = 0; i < size(); ++i) {
      const auto index = static_cast<uint64_t>(static_cast<int64_t>(from[i]));
      if (index <= std::numeric_limits<uint32_t>::max()) continue;
      throw py::index_error(name + "[" + std::to_string(i) + "] is " + std::to_string(from[i]) +
                            "; allowed: 0 and more, below the table's count");
    }
  }

  const py::buffer_info info_;
  std::vector<uint32_t> converted_;
};

// Everything that a batch refers to, held until the call is over.
class Batch {
 public:
  Batch(Tables local_tables, Tables remote_tables, const py::buffer& local_blocks,
        const py::buffer& remote_blocks)
      : local_tables_(std::move(local_tables)),
        remote_tables_(std::move(remote_tables)),
        local_(local_blocks, "local_blocks"),
        remote_(remote_blocks, "remote_blocks") {
    CheckSame(local_tables_.size(), remote_tables_.size(), "tables");
    CheckSame(local_.size(), remote_.size(), "blocks");
  }

  hixl::BlockBatch view() const {
    hixl::BlockBatch batch;
    batch.local_tables = local_tables_.data();
    batch.remote_tables = remote_tables_.data();
    batch.table_count = local_tables_.size();
    batch.local_blocks = local_.data();
    batch.remote_blocks = remote_.data();
    batch.block_count = local_.size();
    return batch;
  }

 private:
  static void CheckSame(size_t local, size_t remote, const std::string& what) {
    if (local == remote) return;
    throw py::value_error("local_" + what + " has " + std::to_string(local) + " entries, remote_" +
                          what + " has " + std::to_string(remote));
  }

  const Tables local_tables_;
  const Tables remote_tables_;
  const Indices local_;
  const Indices remote_;
};

// A table, or a list of them.
Tables ToTables(const py::object& tables) {
  if (py::isinstance<BlockTable>(tables)) return {tables.cast<BlockTable>()};
  return tables.cast<Tables>();
}

Status TransferSyncBlocks(Hixl& self, const std::string& remote, hixl::TransferOp op,
                          const py::object& local_tables, const py::object& remote_tables,
                          const py::buffer& local_blocks, const py::buffer& remote_blocks,
                          int32_t timeout) {
  const Batch batch(ToTables(local_tables), ToTables(remote_tables), local_blocks, remote_blocks);
  UnlockedScope unlocked;
  return HixlExt::TransferSync(self, ToAscend(remote), op, batch.view(), timeout);
}

std::pair<Status, uint64_t> TransferAsyncBlocks(Hixl& self, const std::string& remote,
                                                hixl::TransferOp op, const py::object& local_tables,
                                                const py::object& remote_tables,
                                                const py::buffer& local_blocks,
                                                const py::buffer& remote_blocks,
                                                const hixl::TransferArgs& args) {
  const Batch batch(ToTables(local_tables), ToTables(remote_tables), local_blocks, remote_blocks);
  hixl::TransferReq request = nullptr;
  UnlockedScope unlocked;
  const Status status =
      HixlExt::TransferAsync(self, ToAscend(remote), op, batch.view(), args, request);
  return {status, reinterpret_cast<uint64_t>(request)};
}

void AddTable(py::module_& module) {
  py::class_<BlockTable>(module, "BlockTable", kTableDoc)
      .def(py::init([](uint64_t base, uint64_t stride, uint64_t block_bytes, uint32_t count) {
             return BlockTable{base, stride, block_bytes, count};
           }),
           py::arg("base"), py::arg("stride"), py::arg("block_bytes"), py::arg("count"))
      .def_readwrite("base", &BlockTable::base)
      .def_readwrite("stride", &BlockTable::stride)
      .def_readwrite("block_bytes", &BlockTable::block_bytes)
      .def_readwrite("count", &BlockTable::count);
}

}  // namespace

void AddBlocks(py::module_& module) {
  AddTable(module);
  const py::object engine = module.attr("Hixl");
  const auto add = [&engine](const char* name, auto function, const auto&... extra) {
    engine.attr(name) =
        py::cpp_function(function, py::name(name), py::is_method(engine), py::arg("remote_engine"),
                         py::arg("op"), py::arg("local_tables"), py::arg("remote_tables"),
                         py::arg("local_blocks"), py::arg("remote_blocks"), extra...);
  };
  add("transfer_sync_blocks", TransferSyncBlocks, py::arg("timeout_in_millis") = 1000, kSyncDoc);
  add("transfer_async_blocks", TransferAsyncBlocks, py::arg("args") = hixl::TransferArgs(),
      "transfer_async of whole blocks, as transfer_sync_blocks names them: (status, req).");
}

}  // namespace hixl_python
