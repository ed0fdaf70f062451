// Text codes of errors (contract 5.3) that are given where the kind of call is known.
#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace hixld {

constexpr char kRegistrationFailed[] = "HIXL_001001";
constexpr char kConnectTimedOut[] = "HIXL_001002";
constexpr char kInvalidHandle[] = "HIXL_001003";

// The same with this text code, unless it has one already.
absl::Status WithTextCode(absl::Status status, absl::string_view text_code);

}  // namespace hixld
