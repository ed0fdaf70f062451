// A program with the old std::string ABI, linked against libcann_hixl.so as users link it.
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

#include "hixl/hixl.h"
#include "hixl/hixl_ext.h"

namespace {

int failures = 0;

void Expect(bool held, const char* what) {
  if (held) return;
  std::printf("not so: %s\n", what);
  ++failures;
}

}  // namespace

int main() {
  static_assert(_GLIBCXX_USE_CXX11_ABI == 0, "this is the point of the test");
  setenv("HIXLD_SOCKET", "/nonexistent/hixld.sock", 1);
  setenv("HIXLD_NO_AUTOSTART", "1", 1);
  std::map<hixl::AscendString, hixl::AscendString> options;
  options[hixl::OPTION_AUTO_CONNECT] = std::string("1").c_str();
  hixl::Hixl engine;
  Expect(engine.Initialize("127.0.0.1:0", options) == hixl::FAILED, "without a daemon: FAILED");
  const hixl::ErrorInfo error = hixl::HixlExt::LastError();
  Expect(
      std::string(error.message.GetString()).find("/nonexistent/hixld.sock") != std::string::npos,
      "the message names the socket");
  options["unknown"] = "x";
  Expect(engine.Initialize("127.0.0.1:0", options) == hixl::PARAM_INVALID, "unknown option");
  Expect(hixl::HixlExt::LastError().option == hixl::AscendString("unknown"), "it is named");
  Expect(!ge::StatusFactory::Instance()->GetErrDesc(ge::FAILED).empty(), "texts cross over");
  return failures == 0 ? 0 : 1;
}
