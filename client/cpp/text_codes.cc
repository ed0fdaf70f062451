#include "client/cpp/text_codes.h"

#include "proto/base/text_code.h"

namespace hixld::client {
namespace {

constexpr TextCode kCodes[] = {
    {kRegistrationFailed, "memory registration failed",
     "the range overlaps another registration, is empty, or is not what its type says",
     "register a range once and as a whole, with the type of its memory"},
    {kConnectTimedOut, "connect timed out",
     "the peer is not started, not initialised, or cannot be reached",
     "start the peer first, use the very name that it was initialised with, raise the timeout"},
    {kInvalidHandle, "invalid transfer handle",
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
