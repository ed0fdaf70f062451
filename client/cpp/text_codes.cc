#include "client/cpp/text_codes.h"

namespace hixld::client {
namespace {

constexpr TextCode kCodes[] = {
    {"HIXL_001001", "memory registration failed",
     "the range overlaps another registration, is empty, or is not what its type says",
     "register a range once and as a whole, with the type of its memory"},
    {"HIXL_001002", "connect timed out",
     "the peer is not started, not initialised, or cannot be reached",
     "start the peer first, use the very name that it was initialised with, raise the timeout"},
    {"HIXL_001003", "invalid transfer handle",
     "it was used after Finalize, before Initialize, after its end was told, or after Disconnect",
     "ask for a request until its end is told, then forget it; initialise the engine first"},
};

}  // namespace

const TextCode* FindTextCode(const std::string& code) {
  for (const TextCode& known : kCodes) {
    if (code == known.code) return &known;
  }
  return nullptr;
}

}  // namespace hixld::client
