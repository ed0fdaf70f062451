// The parts of the extension module, each in a file of its own.
#pragma once

#include <pybind11/pybind11.h>

#include <string>

#include "hixl/hixl.h"
#include "hixl/hixl_ext.h"

namespace hixl_python {

void AddConstants(pybind11::module_& module);
void AddTypes(pybind11::module_& module);
void AddBuffer(pybind11::module_& module);
// After AddTypes: its defaults are objects of those types.
void AddEngine(pybind11::module_& module);
// After AddEngine: it adds methods to Hixl.
void AddBlocks(pybind11::module_& module);

inline hixl::AscendString ToAscend(const std::string& text) {
  return hixl::AscendString(text.data(), text.size());
}

inline std::string FromAscend(const hixl::AscendString& text) {
  return std::string(text.GetString(), text.GetLength());
}

// A new Python object for the buffer.
pybind11::object WrapBuffer(hixl::Buffer buffer);

}  // namespace hixl_python
