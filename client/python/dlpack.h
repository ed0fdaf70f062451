// The C structures of DLPack version 0, in which arrays change hands between Python libraries.
#pragma once

#include <cstdint>

namespace hixl_python {

constexpr int32_t kDlCpu = 1;
constexpr uint8_t kDlUnsignedInt = 1;

struct DlDevice {
  int32_t device_type;
  int32_t device_id;
};

struct DlDataType {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
};

struct DlTensor {
  void* data;
  DlDevice device;
  int32_t ndim;
  DlDataType dtype;
  int64_t* shape;
  int64_t* strides;  // null: compact and row-major
  uint64_t byte_offset;
};

struct DlManagedTensor {
  DlTensor tensor;
  void* manager_context;
  void (*deleter)(DlManagedTensor*);
};

}  // namespace hixl_python
