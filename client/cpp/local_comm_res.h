// The value of option LocalCommRes (contract 3.4).
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace hixld::client {

struct LocalCommRes {
  std::string version;
  std::string net_instance_id;
  // "roce:device", ... of a version 1.3 endpoint list; empty when it is to be generated.
  std::vector<std::string> endpoints;
};

// PARAM_INVALID: not a JSON object, or a version 1.3 endpoint list that breaks a rule. Other
// versions are only looked at when a link is made.
absl::StatusOr<LocalCommRes> ParseLocalCommRes(const std::string& text);

}  // namespace hixld::client
