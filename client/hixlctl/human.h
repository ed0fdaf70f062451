// Numbers as people read them.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace hixld::hixlctl {

// "512 B", "1.5 GiB", "64 MiB".
std::string HumanBytes(uint64_t bytes);
// "450 us", "12.3 ms", "4.5 s", "5m 03s", "2h 05m", "3d 04h".
std::string HumanMicros(uint64_t micros);
std::string HumanMillis(uint64_t millis);
// "0x7f0000001000".
std::string HumanAddress(uint64_t address);
// A protobuf enumerator without its type's prefix, in lower case: "TRANSFER_STATE_WAITING" of
// prefix "TRANSFER_STATE_" is "waiting".
std::string EnumWord(absl::string_view enumerator, absl::string_view prefix);
// The user's name, or the number when there is none.
std::string UserName(uint32_t uid);

}  // namespace hixld::hixlctl
