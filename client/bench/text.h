// An error in one line for people.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace hixld::bench {

// The message, then what it says about limit, option and allowed values.
std::string ErrorText(const absl::Status& status);

}  // namespace hixld::bench
