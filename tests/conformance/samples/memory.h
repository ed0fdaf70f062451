// Memory of a sample: from malloc, or from the device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "hixl/hixl.h"
#include "hixl/hixl_ext.h"

class Memory {
 public:
  // False when the memory cannot be had or registered.
  bool Register(hixl::Hixl& engine, const char* placement, size_t bytes) {
    const bool device = std::strcmp(placement, "device") == 0;
    if (device) {
      if (hixl::HixlExt::AllocateBuffer(engine, bytes, hixl::MEM_DEVICE, buffer_) !=
          hixl::SUCCESS) {
        return false;
      }
      data_ = static_cast<unsigned char*>(buffer_.data());
    } else {
      host_.resize(bytes);
      data_ = host_.data();
    }
    hixl::MemDesc desc{};
    desc.addr = device ? buffer_.address() : reinterpret_cast<uintptr_t>(data_);
    desc.len = bytes;
    address_ = desc.addr;
    bytes_ = bytes;
    hixl::MemHandle handle = nullptr;
    return data_ != nullptr && engine.RegisterMem(desc, device ? hixl::MEM_DEVICE : hixl::MEM_HOST,
                                                  handle) == hixl::SUCCESS;
  }
  // A pattern of its own for every seed.
  void Fill(unsigned seed) {
    for (size_t i = 0; i < bytes_; ++i) {
      data_[i] = static_cast<unsigned char>((i * 131 + seed * 7919) >> 3);
    }
  }
  // FNV-1a.
  uint64_t Sum() const {
    uint64_t sum = 14695981039346656037ULL;
    for (size_t i = 0; i < bytes_; ++i) sum = (sum ^ data_[i]) * 1099511628211ULL;
    return sum;
  }
  uintptr_t address() const { return address_; }
  size_t size() const { return bytes_; }

 private:
  hixl::Buffer buffer_;
  std::vector<unsigned char> host_;
  unsigned char* data_ = nullptr;
  uintptr_t address_ = 0;
  size_t bytes_ = 0;
};
