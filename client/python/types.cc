// Constants, enums and data classes (contract 2.1 to 2.3).
#include "client/python/module.h"

namespace hixl_python {
namespace {

namespace py = pybind11;

constexpr char kMemDescDoc[] =
    "A range to register: addr and len in bytes. Nothing is touched by making one.";
constexpr char kOpDoc[] =
    "One piece of a transfer: len bytes between local_addr (ours) and remote_addr (the peer's).";
constexpr char kArgsDoc[] =
    "Options of transfer_async. user_data is an int that get_all_transfer_status gives back.";
constexpr char kStatusArgsDoc[] =
    "Limits of get_all_transfer_status: at most max_query_count results; skip_waiting leaves out "
    "transfers that still wait.";
constexpr char kResultDoc[] = "One result of get_all_transfer_status.";
constexpr char kNotifyDoc[] =
    "A short message to a peer; name and notify_msg have at most 1024 bytes each (UTF-8) "
    "and end at the first NUL.";

// What a peer sent need not be UTF-8; reading it must not raise.
py::object Decoded(const hixl::AscendString& text) {
  PyObject* decoded = PyUnicode_DecodeUTF8(
      text.GetString(), static_cast<Py_ssize_t>(text.GetLength()), "surrogateescape");
  if (decoded == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(decoded);
}

uint64_t ToNumber(const void* pointer) { return reinterpret_cast<uint64_t>(pointer); }

void AddEnums(py::module_& module) {
  py::enum_<hixl::MemType>(module, "MemType", "Kind of memory.")
      .value("MEM_DEVICE", hixl::MEM_DEVICE)
      .value("MEM_HOST", hixl::MEM_HOST)
      .export_values();
  py::enum_<hixl::TransferOp>(module, "TransferOp",
                              "READ copies from the peer to us, WRITE from us to the peer.")
      .value("READ", hixl::READ)
      .value("WRITE", hixl::WRITE)
      .export_values();
  // Not exported: TIMEOUT and FAILED of the module are status ints.
  py::enum_<hixl::TransferStatus>(module, "TransferStatus", "Where a transfer stands.")
      .value("WAITING", hixl::TransferStatus::WAITING)
      .value("COMPLETED", hixl::TransferStatus::COMPLETED)
      .value("TIMEOUT", hixl::TransferStatus::TIMEOUT)
      .value("FAILED", hixl::TransferStatus::FAILED);
  py::enum_<hixl::AsyncConnectStatus>(module, "AsyncConnectStatus",
                                      "Where connect_async and disconnect_async stand.")
      .value("NOT_CONNECT", hixl::AsyncConnectStatus::NOT_CONNECT)
      .value("CONNECT_PENDING", hixl::AsyncConnectStatus::CONNECT_PENDING)
      .value("CONNECTING", hixl::AsyncConnectStatus::CONNECTING)
      .value("CONNECTED", hixl::AsyncConnectStatus::CONNECTED)
      .value("CONNECT_FAILED", hixl::AsyncConnectStatus::CONNECT_FAILED)
      .value("DISCONNECT_PENDING", hixl::AsyncConnectStatus::DISCONNECT_PENDING)
      .value("DISCONNECTING", hixl::AsyncConnectStatus::DISCONNECTING)
      .export_values();
  py::enum_<hixl::FeatureType>(module, "FeatureType", "Features that get_capability knows.")
      .value("AUTO_CONNECT", hixl::AUTO_CONNECT)
      .value("CLIENT_SERVER_COMM", hixl::CLIENT_SERVER_COMM)
      .export_values();
}

void AddDescriptors(py::module_& module) {
  py::class_<hixl::MemDesc>(module, "MemDesc", kMemDescDoc)
      .def(py::init([](uintptr_t addr, size_t len) {
             hixl::MemDesc desc{};
             desc.addr = addr;
             desc.len = len;
             return desc;
           }),
           py::arg("addr"), py::arg("len"))
      .def_readwrite("addr", &hixl::MemDesc::addr)
      .def_readwrite("len", &hixl::MemDesc::len);
  py::class_<hixl::TransferOpDesc>(module, "TransferOpDesc", kOpDoc)
      .def(py::init([](uintptr_t local_addr, uintptr_t remote_addr, size_t len) {
             return hixl::TransferOpDesc{local_addr, remote_addr, len};
           }),
           py::arg("local_addr"), py::arg("remote_addr"), py::arg("len"))
      .def_readwrite("local_addr", &hixl::TransferOpDesc::local_addr)
      .def_readwrite("remote_addr", &hixl::TransferOpDesc::remote_addr)
      .def_readwrite("len", &hixl::TransferOpDesc::len);
  py::class_<hixl::NotifyDesc>(module, "NotifyDesc", kNotifyDoc)
      .def(py::init([](const std::string& name, const std::string& notify_msg) {
             // Up to the first NUL, as the contract says.
             return hixl::NotifyDesc{hixl::AscendString(name.c_str()),
                                     hixl::AscendString(notify_msg.c_str())};
           }),
           py::arg("name"), py::arg("notify_msg"))
      .def_property(
          "name", [](const hixl::NotifyDesc& self) { return Decoded(self.name); },
          [](hixl::NotifyDesc& self, const std::string& name) { self.name = name.c_str(); })
      .def_property(
          "notify_msg", [](const hixl::NotifyDesc& self) { return Decoded(self.notify_msg); },
          [](hixl::NotifyDesc& self, const std::string& text) { self.notify_msg = text.c_str(); });
}

void AddArguments(py::module_& module) {
  py::class_<hixl::TransferArgs>(module, "TransferArgs", kArgsDoc)
      .def(py::init<>())
      .def_property(
          "user_data", [](const hixl::TransferArgs& self) { return ToNumber(self.user_data); },
          [](hixl::TransferArgs& self, uint64_t value) {
            self.user_data = reinterpret_cast<const void*>(value);
          });
  py::class_<hixl::GetTransferStatusArgs>(module, "GetTransferStatusArgs", kStatusArgsDoc)
      .def(py::init([](uint32_t max_query_count, bool skip_waiting) {
             hixl::GetTransferStatusArgs args;
             args.max_query_count = max_query_count;
             args.skip_waiting = skip_waiting;
             return args;
           }),
           py::arg("max_query_count") = UINT32_MAX, py::arg("skip_waiting") = false)
      .def_readwrite("max_query_count", &hixl::GetTransferStatusArgs::max_query_count)
      .def_readwrite("skip_waiting", &hixl::GetTransferStatusArgs::skip_waiting);
  py::class_<hixl::TransferResult>(module, "TransferResult", kResultDoc)
      .def(py::init<>())
      .def_property(
          "req", [](const hixl::TransferResult& self) { return ToNumber(self.req); },
          [](hixl::TransferResult& self, uint64_t value) {
            self.req = reinterpret_cast<hixl::TransferReq>(value);
          })
      .def_property(
          "user_data", [](const hixl::TransferResult& self) { return ToNumber(self.user_data); },
          [](hixl::TransferResult& self, uint64_t value) {
            self.user_data = reinterpret_cast<const void*>(value);
          })
      .def_readonly("status", &hixl::TransferResult::status);
}

}  // namespace

void AddConstants(py::module_& module) {
  module.attr("SUCCESS") = hixl::SUCCESS;
  module.attr("PARAM_INVALID") = hixl::PARAM_INVALID;
  module.attr("TIMEOUT") = hixl::TIMEOUT;
  module.attr("NOT_CONNECTED") = hixl::NOT_CONNECTED;
  module.attr("ALREADY_CONNECTED") = hixl::ALREADY_CONNECTED;
  module.attr("NOTIFY_FAILED") = hixl::NOTIFY_FAILED;
  module.attr("UNSUPPORTED") = hixl::UNSUPPORTED;
  module.attr("FAILED") = hixl::FAILED;
  module.attr("RESOURCE_EXHAUSTED") = hixl::RESOURCE_EXHAUSTED;
  module.attr("OPTION_ENABLE_USE_FABRIC_MEM") = hixl::OPTION_ENABLE_USE_FABRIC_MEM;
  module.attr("OPTION_RDMA_TRAFFIC_CLASS") = hixl::OPTION_RDMA_TRAFFIC_CLASS;
  module.attr("OPTION_RDMA_SERVICE_LEVEL") = hixl::OPTION_RDMA_SERVICE_LEVEL;
  module.attr("OPTION_BUFFER_POOL") = hixl::OPTION_BUFFER_POOL;
  module.attr("OPTION_GLOBAL_RESOURCE_CONFIG") = hixl::OPTION_GLOBAL_RESOURCE_CONFIG;
  module.attr("OPTION_AUTO_CONNECT") = hixl::OPTION_AUTO_CONNECT;
  module.attr("OPTION_LOCAL_COMM_RES") = hixl::OPTION_LOCAL_COMM_RES;
  module.attr("FEATURE_SUPPORTED") = hixl::FEATURE_SUPPORTED;
  module.attr("FEATURE_NOT_SUPPORTED") = hixl::FEATURE_NOT_SUPPORTED;
  module.attr("__version__") = hixl::HixlExt::Version();
}

void AddTypes(py::module_& module) {
  AddEnums(module);
  AddDescriptors(module);
  AddArguments(module);
}

}  // namespace hixl_python
