// The one table of configuration keys. Loading, range checks, docs/config.md and hixld.yaml all
// come from it. To add a key: one member in config.h, one line in schema.cc, then
// `bazel run //config:update`.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "config/config.h"

namespace hixld {

// A value as written by the user, before it is checked.
struct RawValue {
  bool is_list = false;
  std::string text;                // when it is no list
  std::vector<std::string> items;  // when it is one
};

struct ConfigKey {
  std::string key;      // "tcp.lanes"
  std::string type;     // "integer", "size", "duration", "boolean", "text", "choice", "list", ...
  std::string allowed;  // "1..16", "off | try | require"
  std::string doc;      // meaning and unit, one paragraph
  // Stores a value. The error is INVALID_ARGUMENT; its message says what is wrong with the value
  // and names neither key nor place.
  std::function<absl::Status(Config&, const RawValue&)> set;
  // The value as YAML.
  std::function<std::string(const Config&)> get;
};

struct ConfigSection {
  std::string path;  // "tcp"
  std::string doc;
};

// In the order of the documentation; keys of one section stand together.
const std::vector<ConfigKey>& ConfigKeys();
const std::vector<ConfigSection>& ConfigSections();

// nullptr when there is none.
const ConfigKey* FindConfigKey(absl::string_view key);
bool IsConfigSection(absl::string_view path);
// The known key that `key` is most likely meant to be.
std::string NearestConfigKey(absl::string_view key);
// The keys of the innermost section that `key` is in, for error messages.
std::vector<std::string> ConfigKeysBeside(absl::string_view key);

}  // namespace hixld
