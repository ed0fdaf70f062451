// The release that daemon, client library and tools belong to.
#pragma once

namespace hixld {

constexpr char kVersion[] = "0.1.0";

}  // namespace hixld
