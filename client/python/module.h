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

// Runs a scope without the interpreter's lock. Unlike pybind11's own, its end may be left by an
// unwinding: a thread that wants the lock back while the interpreter ends is ended there by
// CPython, and would otherwise take the process down.
class UnlockedScope {
 public:
  UnlockedScope() : state_(PyEval_SaveThread()) {}
  UnlockedScope(const UnlockedScope&) = delete;
  UnlockedScope& operator=(const UnlockedScope&) = delete;
  ~UnlockedScope() noexcept(false) { PyEval_RestoreThread(state_); }

 private:
  PyThreadState* const state_;
};

inline hixl::AscendString ToAscend(const std::string& text) {
  return hixl::AscendString(text.data(), text.size());
}

inline std::string FromAscend(const hixl::AscendString& text) {
  return std::string(text.GetString(), text.GetLength());
}

// The kind of a buffer's items, as struct spells it; '\0' for items in another machine's byte
// order, which are never what they seem here.
inline char KindOf(const pybind11::buffer_info& info) {
  if (info.format.empty()) return '\0';
  constexpr bool kLittle = __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__;
  const std::string foreign = kLittle ? ">!" : "<";
  return foreign.find(info.format.front()) == std::string::npos ? info.format.back() : '\0';
}

// A new Python object for the buffer.
pybind11::object WrapBuffer(hixl::Buffer buffer);

}  // namespace hixl_python
