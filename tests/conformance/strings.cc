// ge::AscendString (contract 0.3), and hixl::Hixl::Initialize on a live object in C++ (1.3).
#include <cstdio>
#include <cstring>
#include <map>
#include <string>
#include <unordered_map>

#include "hixl/hixl.h"

namespace {

int failures = 0;

void Expect(bool held, const char* what) {
  if (held) return;
  std::printf("not so: %s\n", what);
  ++failures;
}

using ge::AscendString;

void NullAndEmpty() {
  const AscendString null;
  const AscendString empty("");
  const AscendString from_null(static_cast<const char*>(nullptr));
  Expect(null == from_null && null != empty && empty != null, "null is not empty");
  Expect(std::strcmp(null.GetString(), "") == 0 && null.GetLength() == 0, "null reads as empty");
  Expect(null == nullptr && empty != nullptr && empty == "" && null != "", "against pointers");
  Expect(null < empty && null < AscendString("a") && !(null < from_null), "null sorts first");
  Expect(null <= empty && empty >= null && empty > null && null >= from_null, "every operator");
  Expect(null.Find("a") == std::string::npos && AscendString("a").Find(null) == std::string::npos,
         "nothing is found in or as null");
  Expect(null.Hash() == empty.Hash(), "null hashes as empty");
  Expect(AscendString(nullptr, 4) == null, "a null pointer with a length is null");
}

void Contents() {
  const AscendString text("abcabc");
  Expect(text.GetLength() == 6 && text == "abcabc" && text != "abc", "content");
  Expect(text.Find("bc") == 1 && text.Find("x") == std::string::npos, "find");
  const AscendString binary("a\0b", 3);
  Expect(binary.GetLength() == 3 && std::memcmp(binary.GetString(), "a\0b", 3) == 0, "bytes");
  const AscendString copy = text;
  Expect(copy == text && copy.GetString() == text.GetString(), "copies share the string");
  AscendString moved = AscendString("x");
  moved = AscendString("y");
  Expect(moved == "y", "move");
  Expect(AscendString("a") < AscendString("b") && AscendString("b") > AscendString("a"), "order");
  Expect(std::hash<AscendString>()(text) == text.Hash(), "std::hash");
}

void Usage() {
  std::map<AscendString, AscendString> options;
  options[hixl::OPTION_AUTO_CONNECT] = "1";
  options["BufferPool"] = "4:8";
  const std::string text = "7";
  options[hixl::OPTION_RDMA_SERVICE_LEVEL] = text.c_str();
  const std::map<AscendString, AscendString> braces = {
      {hixl::OPTION_LOCAL_COMM_RES, R"({"version":"1.3"})"}};
  Expect(options.size() == 3 && braces.size() == 1, "maps");
  std::unordered_map<AscendString, int> counts;
  counts["a"] = 1;
  Expect(counts["a"] == 1, "hashed maps");
  const AscendString chosen = options.empty() ? AscendString("no") : options["BufferPool"];
  char line[32];
  std::snprintf(line, sizeof(line), "%s", chosen.GetString());
  Expect(std::strcmp(line, "4:8") == 0, "printf");
}

// A live object checks the options and the address and stays as it is.
void LiveObject() {
  hixl::Hixl engine;
  Expect(engine.Initialize("127.0.0.1:0", {{"BufferPool", "x"}}) == hixl::PARAM_INVALID, "refused");
  Expect(engine.Initialize("127.0.0.1:0", {}) == hixl::SUCCESS, "initialised after a failure");
  Expect(engine.Initialize("127.0.0.1:0", {{"BufferPool", "x"}}) == hixl::PARAM_INVALID,
         "bad options on a live object");
  Expect(engine.Initialize("ad.0.0.1:26200", {}) == hixl::PARAM_INVALID, "a bad address, too");
  Expect(engine.Initialize("127.0.0.1:0", {}) == hixl::SUCCESS, "good ones have no effect");
  std::vector<hixl::NotifyDesc> notifies;
  Expect(engine.GetNotifies(notifies) == hixl::SUCCESS, "it still works");
  engine.Finalize();
  Expect(engine.GetNotifies(notifies) == hixl::FAILED, "finalised");
  Expect(engine.Initialize("127.0.0.1:0", {}) == hixl::SUCCESS, "and initialised again");
}

}  // namespace

int main() {
  NullAndEmpty();
  Contents();
  Usage();
  LiveObject();
  std::printf("%s\n", failures == 0 ? "every check held" : "some checks failed");
  return failures;
}
