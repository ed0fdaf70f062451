// hixl.Hixl (contract 2.4, 2.5). Every call that can wait runs without the interpreter's lock.
#include <pybind11/stl.h>

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "client/python/module.h"

namespace hixl_python {
namespace {

namespace py = pybind11;
using hixl::Hixl;
using hixl::HixlExt;
using hixl::Status;
using Unlocked = py::call_guard<UnlockedScope>;
using Options = std::map<std::string, std::string>;

uint64_t ToNumber(const void* handle) { return reinterpret_cast<uint64_t>(handle); }
void* ToHandle(uint64_t number) { return reinterpret_cast<void*>(number); }

// Finalising waits for the daemon.
struct UnlockedDelete {
  void operator()(Hixl* engine) const {
    UnlockedScope unlocked;
    delete engine;
  }
};

Status Initialize(Hixl& self, const std::string& local_engine, const Options& options,
                  bool listen_on_any_port, int32_t device_id) {
  if (HixlExt::IsInitialized(self)) return hixl::SUCCESS;
  std::map<hixl::AscendString, hixl::AscendString> converted;
  for (const auto& [key, value] : options) converted[ToAscend(key)] = ToAscend(value);
  hixl::InitializeExtArgs args;
  args.listen_on_any_port = listen_on_any_port;
  args.device_id = device_id;
  return HixlExt::Initialize(self, ToAscend(local_engine), converted, args);
}

std::string EngineId(Hixl& self) {
  hixl::AscendString id;
  if (HixlExt::IsInitialized(self)) HixlExt::EngineId(self, id);
  return FromAscend(id);
}

std::pair<Status, uint64_t> RegisterMem(Hixl& self, const hixl::MemDesc& desc, hixl::MemType type) {
  hixl::MemHandle handle = nullptr;
  const Status status = self.RegisterMem(desc, type, handle);
  return {status, ToNumber(handle)};
}

std::pair<Status, std::vector<uint64_t>> RegisterMemBatch(Hixl& self,
                                                          const std::vector<hixl::MemDesc>& descs,
                                                          hixl::MemType type) {
  std::vector<hixl::MemHandle> handles;
  const Status status = HixlExt::RegisterMemBatch(self, descs, type, handles);
  std::vector<uint64_t> numbers;
  for (const hixl::MemHandle handle : handles) numbers.push_back(ToNumber(handle));
  return {status, numbers};
}

Status DeregisterMemBatch(Hixl& self, const std::vector<uint64_t>& numbers) {
  std::vector<hixl::MemHandle> handles;
  for (const uint64_t number : numbers) handles.push_back(ToHandle(number));
  return HixlExt::DeregisterMemBatch(self, handles);
}

std::pair<Status, uint64_t> RegisterMemfd(Hixl& self, const hixl::MemDesc& desc, hixl::MemType type,
                                          int fd, uint64_t offset) {
  hixl::MemHandle handle = nullptr;
  const Status status = HixlExt::RegisterMemfd(self, desc, type, fd, offset, handle);
  return {status, ToNumber(handle)};
}

std::pair<Status, hixl::AsyncConnectStatus> GetAsyncConnectStatus(Hixl& self,
                                                                  const std::string& remote) {
  auto state = hixl::AsyncConnectStatus::NOT_CONNECT;
  const Status status = self.GetAsyncConnectStatus(ToAscend(remote), state);
  return {status, state};
}

std::pair<Status, std::map<std::string, hixl::AsyncConnectStatus>> GetAllAsyncConnectStatus(
    Hixl& self) {
  std::map<hixl::AscendString, hixl::AsyncConnectStatus> states;
  const Status status = self.GetAsyncConnectStatus(states);
  std::map<std::string, hixl::AsyncConnectStatus> converted;
  for (const auto& [peer, state] : states) converted[FromAscend(peer)] = state;
  return {status, converted};
}

std::pair<Status, uint64_t> TransferAsync(Hixl& self, const std::string& remote,
                                          hixl::TransferOp op,
                                          const std::vector<hixl::TransferOpDesc>& descs,
                                          const hixl::TransferArgs& args) {
  hixl::TransferReq request = nullptr;
  const Status status = self.TransferAsync(ToAscend(remote), op, descs, args, request);
  return {status, ToNumber(request)};
}

std::pair<Status, hixl::TransferStatus> GetTransferStatus(Hixl& self, uint64_t request) {
  auto state = hixl::TransferStatus::FAILED;
  const Status status = self.GetTransferStatus(ToHandle(request), state);
  return {status, state};
}

std::pair<Status, std::vector<hixl::TransferResult>> GetAllTransferStatus(
    Hixl& self, const hixl::GetTransferStatusArgs& args) {
  std::vector<hixl::TransferResult> results;
  const Status status = self.GetTransferStatus(args, results);
  return {status, std::move(results)};
}

std::pair<Status, std::vector<hixl::NotifyDesc>> GetNotifies(Hixl& self) {
  std::vector<hixl::NotifyDesc> notifies;
  const Status status = self.GetNotifies(notifies);
  return {status, std::move(notifies)};
}

// The three buffers of a batch, held until the call is over.
class Arrays {
 public:
  Arrays(const py::buffer& local, const py::buffer& remote, const py::buffer& lengths)
      : local_(local.request()), remote_(remote.request()), lengths_(lengths.request()) {
    Check(local_, "local_addresses");
    Check(remote_, "remote_addresses");
    Check(lengths_, "lengths");
    if (local_.size != remote_.size || local_.size != lengths_.size) {
      throw py::value_error("the three arrays have " + std::to_string(local_.size) + ", " +
                            std::to_string(remote_.size) + " and " + std::to_string(lengths_.size) +
                            " entries");
    }
  }

  hixl::TransferArrays view() const {
    hixl::TransferArrays arrays;
    arrays.local_addresses = static_cast<const uint64_t*>(local_.ptr);
    arrays.remote_addresses = static_cast<const uint64_t*>(remote_.ptr);
    arrays.lengths = static_cast<const uint64_t*>(lengths_.ptr);
    arrays.count = static_cast<size_t>(local_.size);
    return arrays;
  }

 private:
  static void Check(const py::buffer_info& info, const std::string& name) {
    const bool integers = std::string("qQlLnN").find(KindOf(info)) != std::string::npos;
    const bool compact = info.ndim == 1 && (info.size <= 1 || info.strides[0] == info.itemsize);
    if (!integers || info.itemsize != 8 || !compact) {
      throw py::type_error(
          name +
          " must be a contiguous one-dimensional array of uint64 in this machine's byte order");
    }
  }

  const py::buffer_info local_;
  const py::buffer_info remote_;
  const py::buffer_info lengths_;
};

Status TransferSyncArrays(Hixl& self, const std::string& remote, hixl::TransferOp op,
                          const py::buffer& local_addresses, const py::buffer& remote_addresses,
                          const py::buffer& lengths, int32_t timeout) {
  const Arrays arrays(local_addresses, remote_addresses, lengths);
  UnlockedScope unlocked;
  return HixlExt::TransferSync(self, ToAscend(remote), op, arrays.view(), timeout);
}

std::pair<Status, uint64_t> TransferAsyncArrays(
    Hixl& self, const std::string& remote, hixl::TransferOp op, const py::buffer& local_addresses,
    const py::buffer& remote_addresses, const py::buffer& lengths, const hixl::TransferArgs& args) {
  const Arrays arrays(local_addresses, remote_addresses, lengths);
  hixl::TransferReq request = nullptr;
  UnlockedScope unlocked;
  const Status status =
      HixlExt::TransferAsync(self, ToAscend(remote), op, arrays.view(), args, request);
  return {status, ToNumber(request)};
}

py::object Allocate(Hixl& self, int64_t nbytes, hixl::MemType type) {
  if (nbytes <= 0) throw py::value_error("nbytes must be above 0");
  hixl::Buffer buffer;
  Status status = hixl::SUCCESS;
  {
    UnlockedScope unlocked;
    status = HixlExt::AllocateBuffer(self, static_cast<size_t>(nbytes), type, buffer);
  }
  if (status == hixl::SUCCESS) return WrapBuffer(std::move(buffer));
  PyObject* error = status == hixl::RESOURCE_EXHAUSTED ? PyExc_MemoryError
                    : status == hixl::PARAM_INVALID    ? PyExc_ValueError
                                                       : PyExc_RuntimeError;
  PyErr_SetString(error, HixlExt::LastErrorText());
  throw py::error_already_set();
}

using EngineClass = py::class_<Hixl, std::unique_ptr<Hixl, UnlockedDelete>>;

void AddLife(EngineClass& type) {
  type.def(py::init<>())
      .def("initialize", Initialize, Unlocked(), py::arg("local_engine"),
           py::arg("options") = Options(), py::kw_only(), py::arg("listen_on_any_port") = false,
           py::arg("device_id") = -1,
           "Makes this object an engine; its name is local_engine. Returns a status. On a live "
           "engine: SUCCESS, and nothing happens.")
      .def("finalize", &Hixl::Finalize, Unlocked(), "Releases everything. Harmless when repeated.")
      .def("engine_id", EngineId, Unlocked(),
           "The name under which peers reach this engine; '' when it is not initialised.")
      .def("__enter__", [](py::object self) { return self; })
      .def("__exit__", [](Hixl& self, const py::args&) {
        UnlockedScope unlocked;
        self.Finalize();
      });
}

void AddMemory(EngineClass& type) {
  type.def("register_mem", RegisterMem, Unlocked(),
           "register_mem(mem_desc, mem_type) -> (status, handle). The handle is 0 on failure.")
      .def(
          "deregister_mem",
          [](Hixl& self, uint64_t handle) { return self.DeregisterMem(ToHandle(handle)); },
          Unlocked(), "deregister_mem(handle) -> status.")
      .def("register_mem_batch", RegisterMemBatch, Unlocked(), py::arg("mem_descs"),
           py::arg("mem_type"),
           "Registers all ranges in one round trip, or none: (status, handles in order).")
      .def("deregister_mem_batch", DeregisterMemBatch, Unlocked(), py::arg("handles"),
           "Releases all handles in one round trip.")
      .def("register_memfd", RegisterMemfd, Unlocked(), py::arg("mem_desc"), py::arg("mem_type"),
           py::arg("fd"), py::arg("offset") = 0,
           "Registers a range that maps bytes from offset of the memfd fd, which must be sealed "
           "against shrinking: (status, handle).")
      .def("allocate", Allocate, py::arg("nbytes"), py::arg("mem_type") = hixl::MEM_HOST,
           "Takes a Buffer of nbytes bytes from the daemon's pool. Raises MemoryError when the "
           "pool is exhausted, ValueError for a bad size, RuntimeError for anything else.");
}

void AddLinks(EngineClass& type) {
  type.def(
          "connect",
          [](Hixl& self, const std::string& remote, int32_t timeout) {
            return self.Connect(ToAscend(remote), timeout);
          },
          Unlocked(), py::arg("remote_engine"), py::arg("timeout_in_millis") = 1000,
          "Links this engine to a peer, one way. Returns a status.")
      .def(
          "disconnect",
          [](Hixl& self, const std::string& remote, int32_t timeout) {
            return self.Disconnect(ToAscend(remote), timeout);
          },
          Unlocked(), py::arg("remote_engine"), py::arg("timeout_in_millis") = 1000,
          "Drops the link and our outstanding transfers on it. Returns a status.")
      .def(
          "connect_async",
          [](Hixl& self, const std::string& remote, int32_t timeout) {
            return self.ConnectAsync(ToAscend(remote), timeout);
          },
          Unlocked(), py::arg("remote_engine"), py::arg("timeout_in_millis") = 1000,
          "connect in the background; see get_async_connect_status.")
      .def(
          "disconnect_async",
          [](Hixl& self, const std::string& remote, int32_t timeout) {
            return self.DisconnectAsync(ToAscend(remote), timeout);
          },
          Unlocked(), py::arg("remote_engine"), py::arg("timeout_in_millis") = 1000,
          "disconnect in the background; see get_async_connect_status.")
      .def("get_async_connect_status", GetAsyncConnectStatus, Unlocked(),
           "get_async_connect_status(remote_engine) -> (status, AsyncConnectStatus).")
      .def("get_all_async_connect_status", GetAllAsyncConnectStatus, Unlocked(),
           "(status, {peer: AsyncConnectStatus}); peers in NOT_CONNECT are left out.");
}

void AddTransfers(EngineClass& type) {
  type.def(
          "transfer_sync",
          [](Hixl& self, const std::string& remote, hixl::TransferOp op,
             const std::vector<hixl::TransferOpDesc>& descs,
             int32_t timeout) { return self.TransferSync(ToAscend(remote), op, descs, timeout); },
          Unlocked(), py::arg("remote_engine"), py::arg("op"), py::arg("op_descs"),
          py::arg("timeout_in_millis") = 1000,
          "Moves every piece and waits for the last. Returns a status.")
      .def("transfer_async", TransferAsync, Unlocked(), py::arg("remote_engine"), py::arg("op"),
           py::arg("op_descs"), py::arg("args") = hixl::TransferArgs(),
           "Starts the same: (status, req). req is 0 on failure.")
      .def("transfer_sync_arrays", TransferSyncArrays, py::arg("remote_engine"), py::arg("op"),
           py::arg("local_addresses"), py::arg("remote_addresses"), py::arg("lengths"),
           py::arg("timeout_in_millis") = 1000,
           "transfer_sync with the batch as three one-dimensional uint64 arrays (NumPy, array, "
           "memoryview) of one length; no Python object is made per piece.")
      .def("transfer_async_arrays", TransferAsyncArrays, py::arg("remote_engine"), py::arg("op"),
           py::arg("local_addresses"), py::arg("remote_addresses"), py::arg("lengths"),
           py::arg("args") = hixl::TransferArgs(),
           "transfer_async with the batch as three arrays: (status, req).")
      .def("get_transfer_status", GetTransferStatus, Unlocked(),
           "get_transfer_status(req) -> (status, TransferStatus). COMPLETED and FAILED are told "
           "once; an unknown req is (PARAM_INVALID, FAILED), 0 is (FAILED, FAILED).")
      .def("get_all_transfer_status", GetAllTransferStatus, Unlocked(),
           py::arg("args") = hixl::GetTransferStatusArgs(),
           "(status, [TransferResult]) of the outstanding transfers in order of submission.");
}

void AddNotifies(EngineClass& type) {
  type.def(
          "send_notify",
          [](Hixl& self, const std::string& remote, const hixl::NotifyDesc& notify,
             int32_t timeout) { return self.SendNotify(ToAscend(remote), notify, timeout); },
          Unlocked(), py::arg("remote_engine"), py::arg("notify"),
          py::arg("timeout_in_millis") = 1000,
          "Sends a short message over the link and waits until the peer has it.")
      .def("get_notifies", GetNotifies, Unlocked(),
           "(status, [NotifyDesc]): what has arrived since the last call.");
}

std::pair<Status, int32_t> GetCapability(hixl::FeatureType feature) {
  int32_t value = hixl::FEATURE_NOT_SUPPORTED;
  const Status status = Hixl::GetCapability(feature, value);
  return {status, value};
}

}  // namespace

void AddEngine(py::module_& module) {
  EngineClass type(module, "Hixl",
                   "One engine: registered memory, links to peers, transfers. Statuses are ints; "
                   "hixl.last_error() says why a call failed. All methods but finalize may be "
                   "called from any thread.");
  AddLife(type);
  AddMemory(type);
  AddLinks(type);
  AddTransfers(type);
  AddNotifies(type);
  module.def("get_capability", GetCapability,
             "get_capability(feature_type) -> (status, value). Needs no engine.");
  module.def(
      "last_error", [] { return std::string(HixlExt::LastErrorText()); },
      "Why the last failing call of this thread failed, with the object, limit and option that it "
      "is about; '' if none has failed.");
  module.def(
      "set_log_level",
      [](const std::string& level) {
        if (HixlExt::SetLogLevel(ToAscend(level)) != hixl::SUCCESS) {
          throw py::value_error(HixlExt::LastErrorText());
        }
      },
      py::arg("level"), "Messages on stderr from this level on: DEBUG, INFO, WARN or ERROR.");
}

}  // namespace hixl_python
