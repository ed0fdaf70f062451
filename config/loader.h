// Reads the daemon's configuration: a YAML file, then command-line overrides, then the checks
// that concern several keys. Every error is PARAM_INVALID (a file that cannot be read: FAILED)
// and its message is one line with place, key, value and what is allowed.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "config/config.h"

namespace hixld {

// Reads `path` over the defaults. Unknown and duplicate keys, wrong types and values out of range
// are errors. Does not make the checks of CheckConfig.
absl::StatusOr<Config> LoadConfig(const std::string& path);
// The same for text; `name` stands for the file in messages.
absl::StatusOr<Config> ParseConfig(const std::string& text, const std::string& name);

// Overrides one key, as `--set key=value` does. A list is written "a,b" or "[a, b]".
absl::Status ApplyFlag(Config& config, absl::string_view key, absl::string_view value);
// The same from "key=value".
absl::Status ApplySetting(Config& config, absl::string_view setting);

// Checks that concern several keys, such as a relay slot that is larger than the relay pool.
absl::Status CheckConfig(const Config& config);

// What a daemon's main does: `path` (empty = defaults only), the settings in order, the checks.
absl::StatusOr<Config> ReadConfig(const std::string& path,
                                  const std::vector<std::string>& settings);

// Whether security.* lets the daemon listen on `address` ("ip" or "ip:port"): loopback always,
// others with a cluster key or with security.allow_unauthenticated_network.
absl::Status CheckMayListen(const Config& config, absl::string_view address);

// Where `key` was set, for messages of checks that are made later: "hixld.yaml:12", "--set", or
// "default".
std::string WhereSet(const Config& config, absl::string_view key);

}  // namespace hixld
