#include "config/loader.h"

#include <yaml-cpp/yaml.h>

#include <cerrno>
#include <cstdio>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "config/schema.h"
#include "config/value.h"
#include "proto/base/endpoint.h"
#include "proto/base/status.h"

namespace hixld {
namespace {

// Far more than any configuration needs; keeps a wrong file (a device, a dump) out of memory.
constexpr size_t kMaxFileBytes = 1 << 20;

absl::Status KeyError(const std::string& place, absl::string_view key, absl::string_view what,
                      std::string allowed) {
  return ParamInvalid(absl::StrCat(place, ": ", key, ": ", what, "; allowed: ", allowed),
                      {.object = std::string(key), .option = std::string(key), .allowed = allowed});
}

absl::Status UnknownKey(const std::string& place, absl::string_view key) {
  const std::string allowed = absl::StrJoin(ConfigKeysBeside(key), ", ");
  return ParamInvalid(absl::StrCat(place, ": unknown key \"", key, "\"; did you mean \"",
                                   NearestConfigKey(key), "\"? Known here: ", allowed),
                      {.object = std::string(key), .allowed = allowed});
}

absl::Status SetKey(Config& config, const ConfigKey& key, const RawValue& value,
                    const std::string& place) {
  if (const absl::Status status = key.set(config, value); !status.ok()) {
    return KeyError(place, key.key, status.message(), key.allowed);
  }
  config.set_at[key.key] = place;
  return absl::OkStatus();
}

// Walks the YAML tree and stores what it finds.
class TreeReader {
 public:
  TreeReader(Config& config, const std::string& name) : config_(config), name_(name) {}

  absl::Status ReadMap(const YAML::Node& map, const std::string& prefix) {
    std::set<std::string> seen;
    for (const auto& entry : map) {
      const std::string place = Place(entry.first);
      if (!entry.first.IsScalar()) {
        return ParamInvalid(absl::StrCat(place, ": a key of \"", prefix, "\" is not a word"));
      }
      const std::string key =
          prefix.empty() ? entry.first.Scalar() : absl::StrCat(prefix, ".", entry.first.Scalar());
      if (!seen.insert(key).second && FindConfigKey(key) == nullptr) {
        return ParamInvalid(absl::StrCat(place, ": key \"", key, "\" is given twice"),
                            {.object = key});
      }
      HIXLD_RETURN_IF_ERROR(ReadEntry(key, entry.second, place));
    }
    return absl::OkStatus();
  }

 private:
  std::string Place(const YAML::Node& node) const {
    return absl::StrCat(name_, ":", node.Mark().line + 1);
  }

  absl::Status ReadEntry(const std::string& key, const YAML::Node& value,
                         const std::string& place) {
    if (const ConfigKey* known = FindConfigKey(key)) {
      // "tcp.lanes: 4" may stand for "tcp: {lanes: 4}", so both forms may name one key.
      if (const auto first = config_.set_at.find(key); first != config_.set_at.end()) {
        return ParamInvalid(
            absl::StrCat(place, ": key \"", key, "\" is given twice, first at ", first->second),
            {.object = key});
      }
      RawValue raw;
      HIXLD_RETURN_IF_ERROR(ReadValue(*known, value, place, raw));
      return SetKey(config_, *known, raw, place);
    }
    if (!IsConfigSection(key)) return UnknownKey(place, key);
    // A section whose keys are all commented out.
    if (value.IsNull()) return absl::OkStatus();
    if (!value.IsMap()) {
      return KeyError(place, key, "is a section, not a value",
                      absl::StrJoin(ConfigKeysBeside(key + ".x"), ", "));
    }
    return ReadMap(value, key);
  }

  static absl::Status ReadValue(const ConfigKey& key, const YAML::Node& value,
                                const std::string& place, RawValue& raw) {
    if (value.IsNull()) return KeyError(place, key.key, "has no value", key.allowed);
    if (value.IsMap()) return KeyError(place, key.key, "is a mapping, not a value", key.allowed);
    raw.is_list = value.IsSequence();
    if (!raw.is_list) {
      raw.text = value.Scalar();
      return absl::OkStatus();
    }
    for (const YAML::Node& item : value) {
      if (!item.IsScalar()) {
        return KeyError(place, key.key, "has an entry that is not a word", key.allowed);
      }
      raw.items.push_back(item.Scalar());
    }
    return absl::OkStatus();
  }

  Config& config_;
  const std::string& name_;
};

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  FILE* const file = std::fopen(path.c_str(), "re");
  if (file == nullptr) {
    return ErrnoError(errno, absl::StrCat("cannot read configuration file ", path),
                      {.object = path});
  }
  std::string text(kMaxFileBytes + 1, '\0');
  const size_t bytes = std::fread(text.data(), 1, text.size(), file);
  const int error = std::ferror(file) != 0 ? errno : 0;
  std::fclose(file);
  if (error != 0) {
    return ErrnoError(error, absl::StrCat("cannot read configuration file ", path),
                      {.object = path});
  }
  if (bytes > kMaxFileBytes) {
    return ParamInvalid(absl::StrCat(path, ": is larger than ", FormatSize(kMaxFileBytes)),
                        {.object = path, .limit = FormatSize(kMaxFileBytes)});
  }
  text.resize(bytes);
  return text;
}

absl::Status ReadDocuments(const std::string& text, const std::string& name, Config& config) {
  try {
    const std::vector<YAML::Node> documents = YAML::LoadAll(text);
    if (documents.size() > 1) {
      return ParamInvalid(absl::StrCat(name, ": has more than one YAML document"));
    }
    const YAML::Node root = documents.empty() ? YAML::Node() : documents.front();
    if (!root.IsMap() && !root.IsNull()) {
      return ParamInvalid(absl::StrCat(name, ":1: is no mapping of keys to values"));
    }
    return TreeReader(config, name).ReadMap(root, "");
  } catch (const YAML::Exception& error) {
    return ParamInvalid(
        absl::StrCat(name, ":", error.mark.line + 1, ": is not valid YAML: ", error.msg),
        {.object = name});
  }
}

// "a,b" and "[a, b]" for lists; other values as they are.
RawValue FlagValue(const ConfigKey& key, absl::string_view text) {
  RawValue raw;
  raw.is_list = key.type == "list";
  if (!raw.is_list) {
    raw.text = std::string(text);
    return raw;
  }
  if (absl::StartsWith(text, "[") && absl::EndsWith(text, "]")) {
    text = text.substr(1, text.size() - 2);
  }
  if (absl::StripAsciiWhitespace(text).empty()) return raw;
  for (const absl::string_view item : absl::StrSplit(text, ',')) {
    raw.items.push_back(std::string(absl::StripAsciiWhitespace(item)));
  }
  return raw;
}

// `small` must not exceed `large`.
absl::Status CheckOrder(const Config& config, absl::string_view small, uint64_t small_value,
                        absl::string_view large, uint64_t large_value) {
  if (small_value <= large_value) return absl::OkStatus();
  const std::string limit = FindConfigKey(large)->get(config);
  return KeyError(WhereSet(config, small), small,
                  absl::StrCat(FindConfigKey(small)->get(config), " is more than ", large, " (",
                               limit, ", ", WhereSet(config, large), ")"),
                  absl::StrCat("at most ", limit));
}

}  // namespace

absl::StatusOr<Config> ParseConfig(const std::string& text, const std::string& name) {
  Config config;
  config.file = name;
  HIXLD_RETURN_IF_ERROR(ReadDocuments(text, name, config));
  if (config.set_at.count("version") == 0) {
    return ParamInvalid(absl::StrCat(name, ": key \"version\" is missing; allowed: version: 1"),
                        {.object = "version", .option = "version", .allowed = "1"});
  }
  return config;
}

absl::StatusOr<Config> LoadConfig(const std::string& path) {
  HIXLD_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  return ParseConfig(text, path);
}

absl::Status ApplyFlag(Config& config, absl::string_view key, absl::string_view value) {
  const ConfigKey* const known = FindConfigKey(key);
  if (known == nullptr) return UnknownKey("--set", key);
  return SetKey(config, *known, FlagValue(*known, value), "--set");
}

absl::Status ApplySetting(Config& config, absl::string_view setting) {
  const size_t equals = setting.find('=');
  if (equals == absl::string_view::npos) {
    return ParamInvalid(absl::StrCat("--set: \"", setting, "\" has no '='; allowed: key=value"),
                        {.object = std::string(setting), .allowed = "key=value"});
  }
  return ApplyFlag(config, setting.substr(0, equals), setting.substr(equals + 1));
}

absl::Status CheckConfig(const Config& config) {
  HIXLD_RETURN_IF_ERROR(CheckOrder(config, "pools.host.arena_bytes", config.pools.host.arena_bytes,
                                   "pools.host.max_bytes", config.pools.host.max_bytes));
  HIXLD_RETURN_IF_ERROR(CheckOrder(config, "pools.relay.slot_bytes", config.pools.relay.slot_bytes,
                                   "pools.relay.bytes", config.pools.relay.bytes));
  HIXLD_RETURN_IF_ERROR(CheckOrder(config, "limits.max_sessions_per_uid",
                                   config.limits.max_sessions_per_uid, "limits.max_sessions",
                                   config.limits.max_sessions));
  if (config.tcp.keepalive_timeout < 2 * config.tcp.keepalive_interval) {
    const std::string least = FormatDuration(2 * config.tcp.keepalive_interval);
    return KeyError(WhereSet(config, "tcp.keepalive_timeout"), "tcp.keepalive_timeout",
                    absl::StrCat(FormatDuration(config.tcp.keepalive_timeout),
                                 " is less than twice tcp.keepalive_interval (",
                                 WhereSet(config, "tcp.keepalive_interval"), ")"),
                    absl::StrCat("at least ", least));
  }
  if (!config.node.data_address.empty()) {
    return Annotate(CheckMayListen(config, config.node.data_address),
                    absl::StrCat(WhereSet(config, "node.data_address"), ": node.data_address"));
  }
  return absl::OkStatus();
}

absl::StatusOr<Config> ReadConfig(const std::string& path,
                                  const std::vector<std::string>& settings) {
  Config config;
  if (!path.empty()) {
    HIXLD_ASSIGN_OR_RETURN(config, LoadConfig(path));
  }
  for (const std::string& setting : settings) {
    HIXLD_RETURN_IF_ERROR(ApplySetting(config, setting));
  }
  HIXLD_RETURN_IF_ERROR(CheckConfig(config));
  return config;
}

absl::Status CheckMayListen(const Config& config, absl::string_view address) {
  if (config.security.allow_unauthenticated_network || !config.security.cluster_key_file.empty()) {
    return absl::OkStatus();
  }
  const bool bare_ipv6 = !absl::StartsWith(address, "[") && address.find(':') != address.rfind(':');
  HIXLD_ASSIGN_OR_RETURN(
      const Endpoint endpoint,
      ParseEndpoint(bare_ipv6 ? absl::StrCat("[", address, "]") : std::string(address)));
  if (endpoint.loopback()) return absl::OkStatus();
  return ParamInvalid(
      absl::StrCat("address ", address,
                   " is beyond loopback and there is no cluster key; set security.cluster_key_file,"
                   " or security.allow_unauthenticated_network: true to listen without proof"),
      {.object = std::string(address),
       .option = "security.cluster_key_file",
       .allowed = "a loopback address, or a cluster key"});
}

std::string WhereSet(const Config& config, absl::string_view key) {
  const auto found = config.set_at.find(std::string(key));
  return found == config.set_at.end() ? "default" : found->second;
}

}  // namespace hixld
