// The extension module hixl.hixl.
#include "client/python/module.h"

PYBIND11_MODULE(hixl, module) {
  module.doc() = "One-sided transfers between the memory of two engines.";
  hixl_python::AddConstants(module);
  hixl_python::AddTypes(module);
  hixl_python::AddBuffer(module);
  hixl_python::AddEngine(module);
  hixl_python::AddBlocks(module);
}
