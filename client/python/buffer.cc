// hixl.Buffer: memory of the daemon's pool as seen by NumPy, torch and everything that speaks the
// buffer protocol or DLPack.
#include <memory>
#include <utility>

#include "client/python/dlpack.h"
#include "client/python/module.h"

namespace hixl_python {
namespace {

namespace py = pybind11;

constexpr char kDoc[] =
    "A buffer in the daemon's pool, mapped into this process; made by Hixl.allocate. Registering a "
    "range inside it lets the daemon reach the memory without a copy. Supports the buffer protocol "
    "and DLPack. Freed when it and every view of it are gone.";
constexpr char kNumpyDoc[] =
    "The memory as a NumPy array, without a copy. Without a shape: one dimension with as many "
    "elements as fit.";
constexpr char kTorchDoc[] =
    "The memory as a torch tensor, without a copy. dtype is a torch.dtype or its name. Without a "
    "shape: one dimension with as many elements as fit.";
constexpr char kFreeDoc[] =
    "Gives the memory up: the object cannot be used any more. The memory goes back to the pool "
    "once no view of it is left. Deregister it first.";

using NativePtr = std::shared_ptr<hixl::Buffer>;

// Giving memory back is a round trip to the daemon; DLPack consumers may do it without the
// interpreter's lock.
NativePtr Share(hixl::Buffer buffer) {
  return NativePtr(new hixl::Buffer(std::move(buffer)), [](hixl::Buffer* native) {
    if (Py_IsInitialized() != 0 && PyGILState_Check() != 0) {
      UnlockedScope unlocked;
      delete native;
    } else {
      delete native;
    }
  });
}

class Buffer {
 public:
  explicit Buffer(NativePtr native) : native_(std::move(native)) {}

  const hixl::Buffer& native() const {
    if (freed_) throw py::value_error("the buffer is freed");
    return *native_;
  }
  const NativePtr& Export() {
    native();  // checks
    exported_ = true;
    return native_;
  }
  // A second object for the same memory: what keeps a view alive when this one is freed.
  py::object Twin() {
    native();
    return py::cast(std::make_unique<Buffer>(native_));
  }
  void* HostData() const {
    void* data = native().data();
    if (data == nullptr) throw py::buffer_error("the host cannot map this device memory");
    return data;
  }
  void Free() {
    freed_ = true;
    // Some consumers of the buffer protocol keep this object instead of the export.
    if (!exported_) native_.reset();
  }
  bool freed() const { return freed_; }

 private:
  NativePtr native_;
  bool freed_ = false;
  bool exported_ = false;
};

int GetBuffer(PyObject* object, Py_buffer* view, int flags) {
  try {
    auto& self = py::cast<Buffer&>(py::handle(object));
    void* data = self.HostData();
    const auto size = static_cast<Py_ssize_t>(self.native().size());
    if (PyBuffer_FillInfo(view, object, data, size, /*readonly=*/0, flags) != 0) return -1;
    view->internal = new NativePtr(self.Export());
    return 0;
  } catch (const std::exception& error) {
    view->obj = nullptr;
    PyErr_SetString(PyExc_BufferError, error.what());
    return -1;
  }
}

void ReleaseBuffer(PyObject*, Py_buffer* view) { delete static_cast<NativePtr*>(view->internal); }

// What a DLPack consumer holds.
struct Exported {
  DlManagedTensor managed;
  NativePtr native;
  int64_t shape[1];
};

py::capsule ToDlpack(Buffer& self, const py::kwargs&) {
  auto exported = std::make_unique<Exported>();
  exported->native = self.Export();
  exported->shape[0] = static_cast<int64_t>(self.native().size());
  exported->managed.tensor = {.data = self.HostData(),
                              .device = {kDlCpu, 0},
                              .ndim = 1,
                              .dtype = {kDlUnsignedInt, 8, 1},
                              .shape = exported->shape,
                              .strides = nullptr,
                              .byte_offset = 0};
  exported->managed.manager_context = exported.get();
  exported->managed.deleter = [](DlManagedTensor* managed) {
    delete static_cast<Exported*>(managed->manager_context);
  };
  PyObject* capsule = PyCapsule_New(&exported->managed, "dltensor", [](PyObject* unused) {
    // A consumer renames the capsule and calls the deleter itself.
    if (PyCapsule_IsValid(unused, "dltensor") == 0) return;
    auto* managed = static_cast<DlManagedTensor*>(PyCapsule_GetPointer(unused, "dltensor"));
    managed->deleter(managed);
  });
  if (capsule == nullptr) throw py::error_already_set();
  (void)exported.release();
  return py::reinterpret_steal<py::capsule>(capsule);
}

py::object ToNumpy(Buffer& self, const py::object& dtype, const py::object& shape) {
  self.HostData();  // checks
  const py::module_ numpy = py::module_::import("numpy");
  const py::object type = numpy.attr("dtype")(dtype);
  const py::object dimensions =
      shape.is_none() ? py::cast(self.native().size() / py::cast<size_t>(type.attr("itemsize")))
                      : shape;
  return numpy.attr("ndarray")(dimensions, type, py::arg("buffer") = self.Twin());
}

py::object ToTorch(Buffer& self, const py::object& dtype, const py::object& shape) {
  self.HostData();  // checks
  const py::module_ torch = py::module_::import("torch");
  const py::object type = py::isinstance<py::str>(dtype) ? torch.attr(py::str(dtype)) : dtype;
  // torch.dtype.itemsize is younger than the torch of Debian 12.
  const py::object one = torch.attr("empty")(0, py::arg("dtype") = type);
  const size_t elements = self.native().size() / py::cast<size_t>(one.attr("element_size")());
  if (shape.is_none()) {
    return torch.attr("frombuffer")(self.Twin(), py::arg("dtype") = type,
                                    py::arg("count") = elements);
  }
  const py::object dimensions =
      py::isinstance<py::int_>(shape) ? py::object(py::make_tuple(shape)) : shape;
  const py::object count = py::module_::import("math").attr("prod")(dimensions);
  return torch.attr("frombuffer")(self.Twin(), py::arg("dtype") = type, py::arg("count") = count)
      .attr("reshape")(dimensions);
}

std::string Describe(const Buffer& self) {
  if (self.freed()) return "<hixl.Buffer, freed>";
  const hixl::Buffer& native = self.native();
  return "<hixl.Buffer of " + std::to_string(native.size()) + " bytes, " +
         (native.type() == hixl::MEM_DEVICE ? "MEM_DEVICE" : "MEM_HOST") + ">";
}

}  // namespace

py::object WrapBuffer(hixl::Buffer buffer) {
  return py::cast(std::make_unique<Buffer>(Share(std::move(buffer))));
}

void AddBuffer(py::module_& module) {
  py::class_<Buffer> type(module, "Buffer", py::buffer_protocol(), kDoc);
  type.def_property_readonly(
          "address", [](const Buffer& self) { return self.native().address(); },
          "Where it starts, for MemDesc.")
      .def_property_readonly(
          "nbytes", [](const Buffer& self) { return self.native().size(); },
          "How many bytes were asked for.")
      .def_property_readonly(
          "mem_type", [](const Buffer& self) { return self.native().type(); }, "Its MemType.")
      .def("numpy", ToNumpy, kNumpyDoc, py::arg("dtype") = "uint8", py::arg("shape") = py::none())
      .def("torch", ToTorch, kTorchDoc, py::arg("dtype") = "uint8", py::arg("shape") = py::none())
      .def("free", &Buffer::Free, kFreeDoc)
      .def("__len__", [](const Buffer& self) { return self.native().size(); })
      .def("__repr__", Describe)
      .def("__dlpack__", ToDlpack)
      .def("__dlpack_device__", [](const Buffer& self) {
        self.HostData();
        return std::make_pair(kDlCpu, 0);
      });
  // pybind11's own implementation cannot tie an export to the memory instead of the object.
  auto* heap_type = reinterpret_cast<PyHeapTypeObject*>(type.ptr());
  heap_type->as_buffer.bf_getbuffer = GetBuffer;
  heap_type->as_buffer.bf_releasebuffer = ReleaseBuffer;
}

}  // namespace hixl_python
