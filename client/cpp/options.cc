#include "client/cpp/options.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <initializer_list>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cpp/channel_pool.h"
#include "client/cpp/json_fields.h"
#include "client/cpp/local_comm_res.h"
#include "proto/base/fd.h"
#include "proto/base/status.h"

namespace hixld::client {
namespace {

using nlohmann::json;

constexpr char kFabric[] = "EnableUseFabricMem";
constexpr char kTrafficClass[] = "RdmaTrafficClass";
constexpr char kServiceLevel[] = "RdmaServiceLevel";
constexpr char kBufferPool[] = "BufferPool";
constexpr char kResources[] = "GlobalResourceConfig";
constexpr char kAutoConnect[] = "AutoConnect";
constexpr char kCommRes[] = "LocalCommRes";
constexpr const char* kKeys[] = {kFabric,    kTrafficClass, kServiceLevel, kBufferPool,
                                 kResources, kAutoConnect,  kCommRes};
// These are also known as "adxl.KEY".
constexpr const char* kAliasedKeys[] = {kTrafficClass, kServiceLevel, kBufferPool, kCommRes};
constexpr char kAliasPrefix[] = "adxl.";
constexpr const char* kProtocolDescriptions[] = {"roce:device", "hccs:device",   "ub_ctp:device",
                                                 "uboe:device", "ub_rtp:device", "roce:host",
                                                 "ub_ctp:host"};
constexpr char kProtocolDesc[] = "comm_resource_config.protocol_desc";
constexpr char kEngine[] = "engine";
constexpr char kIntraRoce[] = "HCCL_INTRA_ROCE_ENABLE";
constexpr char k950[] = "Ascend950";
constexpr size_t kMaxCommResFileBytes = 1048576;
// Of a LocalCommRes, in what operators see.
constexpr size_t kMaxShownBytes = 400;

// Where values came from; what is not noted came from an option when that is given, and is the
// default otherwise.
class Sources {
 public:
  void Set(const std::string& key, std::string source) { noted_[key] = std::move(source); }
  std::string Of(const std::string& key, bool given) const {
    const auto found = noted_.find(key);
    if (found != noted_.end()) return found->second;
    return given ? "option" : "default";
  }

 private:
  std::map<std::string, std::string> noted_;
};

absl::Status BadOption(const std::string& key, const std::string& value,
                       const std::string& allowed) {
  return ParamInvalid(
      absl::StrCat("option ", key, " is \"", value.substr(0, 200), "\", allowed is ", allowed),
      {.object = absl::StrCat("option ", key), .option = key, .allowed = allowed});
}

// Plain keys only; where both spellings are given the plain one wins.
absl::StatusOr<OptionMap> ResolveAliases(const OptionMap& options) {
  OptionMap resolved;
  for (const auto& [key, value] : options) {
    if (std::find(std::begin(kKeys), std::end(kKeys), key) != std::end(kKeys)) {
      resolved[key] = value;
      continue;
    }
    const bool alias = absl::StartsWith(key, kAliasPrefix) &&
                       std::find(std::begin(kAliasedKeys), std::end(kAliasedKeys),
                                 key.substr(sizeof(kAliasPrefix) - 1)) != std::end(kAliasedKeys);
    if (!alias) {
      return ParamInvalid(absl::StrCat("unknown option \"", key, "\""),
                          {.object = absl::StrCat("option ", key),
                           .option = key,
                           .allowed = absl::StrJoin(kKeys, ", ")});
    }
    const std::string plain = key.substr(sizeof(kAliasPrefix) - 1);
    if (options.count(plain) == 0) resolved[plain] = value;
  }
  return resolved;
}

const std::string* FindOption(const OptionMap& options, const char* key) {
  const auto found = options.find(key);
  return found == options.end() ? nullptr : &found->second;
}

// A whole decimal number in [low, high] that is a multiple of `step`.
absl::StatusOr<int64_t> ParseNumber(const std::string& key, const std::string& value, int64_t low,
                                    int64_t high, int64_t step) {
  int64_t number = 0;
  const bool digits = !value.empty() && value.find_first_not_of("0123456789") == std::string::npos;
  if (!digits || !absl::SimpleAtoi(value, &number) || number < low || number > high ||
      number % step != 0) {
    std::string allowed = absl::StrCat("an integer in ", low, "..", high);
    if (step > 1) absl::StrAppend(&allowed, ", a multiple of ", step);
    return BadOption(key, value, allowed);
  }
  return number;
}

// An RDMA number: from the option, else from the environment, else the default.
absl::Status ParseRdmaNumber(const OptionsContext& context, const char* key, const char* variable,
                             int64_t high, int64_t step, OptionMap* options, Sources* sources,
                             int64_t* target) {
  const std::string* value = FindOption(*options, key);
  std::string name = key;
  std::string text = value == nullptr ? "" : *value;
  if (text.empty()) {
    text = context.getenv(variable).value_or("");
    name = variable;
  }
  if (text.empty()) {
    options->erase(key);
    return absl::OkStatus();
  }
  HIXLD_ASSIGN_OR_RETURN(*target, ParseNumber(name, text, 0, high, step));
  if (name != key) sources->Set(key, absl::StrCat("environment ", variable));
  (*options)[key] = text;
  return absl::OkStatus();
}

absl::Status ParseBufferPool(const OptionMap& options, EngineOptions* parsed) {
  const std::string* value = FindOption(options, kBufferPool);
  if (value == nullptr || value->empty()) return absl::OkStatus();
  const absl::Status bad =
      BadOption(kBufferPool, *value, "\"COUNT:SIZE_IN_MIB\" with both above 0, or \"0:0\"");
  if (std::count(value->begin(), value->end(), ':') != 1) return bad;
  const size_t colon = value->find(':');
  const auto count = ParseNumber(kBufferPool, value->substr(0, colon), 0, UINT32_MAX, 1);
  // The product in bytes must stay far from overflow.
  const auto mib = ParseNumber(kBufferPool, value->substr(colon + 1), 0, UINT32_MAX, 1);
  if (!count.ok() || !mib.ok() || (*count == 0) != (*mib == 0)) return bad;
  if (*count != 0 && *mib > (INT64_MAX >> 20) / *count) return bad;
  parsed->relay_buffers = *count;
  parsed->relay_buffer_mib = *mib;
  return absl::OkStatus();
}

// "0" or "1"; nullopt when absent, or empty and `empty_is_absent`.
absl::StatusOr<std::optional<bool>> ParseSwitch(const OptionMap& options, const char* key,
                                                bool empty_is_absent) {
  const std::string* value = FindOption(options, key);
  if (value == nullptr || (value->empty() && empty_is_absent)) return std::nullopt;
  if (*value != "0" && *value != "1") return BadOption(key, *value, "\"0\" or \"1\"");
  return *value == "1";
}

absl::Status ReadInt(const JsonFields& fields, const std::string& key, int64_t low, int64_t high,
                     int64_t* target) {
  HIXLD_ASSIGN_OR_RETURN(const auto value, fields.Int(key, low, high));
  if (value) *target = *value;
  return absl::OkStatus();
}

// The four names, flat ("fabric_memory.X") or in a nested object ("X").
absl::Status ReadFabric(const JsonFields& fields, const std::string& prefix,
                        FabricMemoryOptions* fabric) {
  HIXLD_RETURN_IF_ERROR(
      ReadInt(fields, prefix + "max_capacity", 1, 1024, &fabric->max_capacity_tib));
  HIXLD_RETURN_IF_ERROR(
      ReadInt(fields, prefix + "start_address", 0, 1024, &fabric->start_address_tib));
  HIXLD_RETURN_IF_ERROR(ReadInt(fields, prefix + "task_stream_num", 1, 8, &fabric->task_streams));
  HIXLD_ASSIGN_OR_RETURN(const auto unfold, fields.Bool(prefix + "enable_aicpu_unfold"));
  if (unfold) fabric->aicpu_unfold = *unfold;
  return absl::OkStatus();
}

absl::Status ParseFabric(const json& object, FabricMemoryOptions* fabric) {
  const JsonFields flat(object, kResources);
  const auto nested = object.find("fabric_memory");
  if (nested != object.end()) {
    if (!nested->is_object()) return flat.Bad("fabric_memory", "an object");
    HIXLD_RETURN_IF_ERROR(
        ReadFabric(JsonFields(*nested, "GlobalResourceConfig fabric_memory"), "", fabric));
  }
  HIXLD_RETURN_IF_ERROR(ReadFabric(flat, "fabric_memory.", fabric));
  if (fabric->aicpu_unfold && fabric->task_streams != 1) {
    return ParamInvalid(
        absl::StrCat("option GlobalResourceConfig: fabric_memory.task_stream_num is ",
                     fabric->task_streams,
                     ", it must be 1 unless fabric_memory.enable_aicpu_unfold is false"),
        {.object = "option GlobalResourceConfig",
         .option = "fabric_memory.enable_aicpu_unfold",
         .allowed = "1"});
  }
  return absl::OkStatus();
}

absl::Status ParseProtocols(const JsonFields& fields, std::vector<std::string>* protocols) {
  const std::string key = kProtocolDesc;
  HIXLD_ASSIGN_OR_RETURN(auto values, fields.Strings(key));
  if (!values) return absl::OkStatus();
  bool uboe = false;
  bool rtp = false;
  for (const std::string& value : *values) {
    if (std::find(std::begin(kProtocolDescriptions), std::end(kProtocolDescriptions), value) ==
        std::end(kProtocolDescriptions)) {
      return fields.Bad(key, absl::StrJoin(kProtocolDescriptions, ", "));
    }
    uboe = uboe || value == "uboe:device";
    rtp = rtp || value == "ub_rtp:device";
  }
  if (uboe && rtp) return fields.Bad(key, "uboe:device or ub_rtp:device, not both");
  *protocols = *std::move(values);
  return absl::OkStatus();
}

absl::Status ParseChannelPool(const JsonFields& fields, const json& object,
                              ChannelPoolOptions* pool) {
  const std::string max_key = "channel_pool.max_channel";
  HIXLD_RETURN_IF_ERROR(ReadInt(fields, max_key, 1, 512, &pool->max_channels));
  HIXLD_ASSIGN_OR_RETURN(pool->high_waterline, fields.Fraction("channel_pool.high_waterline"));
  HIXLD_ASSIGN_OR_RETURN(pool->low_waterline, fields.Fraction("channel_pool.low_waterline"));
  const bool high = pool->high_waterline.has_value();
  const bool low = pool->low_waterline.has_value();
  if (high != low || (object.contains(max_key) && !high)) {
    return fields.Bad(high ? "channel_pool.low_waterline" : "channel_pool.high_waterline",
                      "both waterlines or none, and both with channel_pool.max_channel");
  }
  if (!high) return absl::OkStatus();
  if (LinksAt(pool->max_channels, *pool->high_waterline) <=
      LinksAt(pool->max_channels, *pool->low_waterline)) {
    return fields.Bad("channel_pool.high_waterline",
                      "at least one channel more than channel_pool.low_waterline stands for");
  }
  return absl::OkStatus();
}

// Every field of GlobalResourceConfig that is given, under its flat name.
void NoteResources(const json& object, Sources* sources) {
  for (const auto& [key, value] : object.items()) sources->Set(key, kResources);
  const auto nested = object.find("fabric_memory");
  if (nested == object.end()) return;
  for (const auto& [key, value] : nested->items()) {
    sources->Set(absl::StrCat("fabric_memory.", key), kResources);
  }
}

absl::Status ParseResources(const OptionMap& options, EngineOptions* parsed, Sources* sources,
                            std::string* comm_res_path) {
  const std::string* value = FindOption(options, kResources);
  if (value == nullptr || value->empty()) return absl::OkStatus();
  HIXLD_ASSIGN_OR_RETURN(const json object, ParseJsonObject(*value, kResources));
  const JsonFields fields(object, kResources);
  HIXLD_RETURN_IF_ERROR(ParseFabric(object, &parsed->fabric));
  HIXLD_RETURN_IF_ERROR(
      ReadInt(fields, "connect_pool.thread_num", 1, 64, &parsed->connect_threads));
  HIXLD_RETURN_IF_ERROR(ReadInt(fields, "connect_pool.task_queue_capacity", 1, 65535,
                                &parsed->connect_queue_capacity));
  HIXLD_RETURN_IF_ERROR(ParseProtocols(fields, &parsed->protocols));
  HIXLD_RETURN_IF_ERROR(
      ReadInt(fields, "comm_resource_config.listen_port", 1, 65535, &parsed->listen_port));
  HIXLD_RETURN_IF_ERROR(ReadInt(fields, "comm_resource_config.qos", 0, 7, &parsed->qos));
  HIXLD_RETURN_IF_ERROR(ReadInt(fields, "comm_resource_config.max_active_channels", 1, UINT32_MAX,
                                &parsed->max_active_channels));
  HIXLD_RETURN_IF_ERROR(ParseChannelPool(fields, object, &parsed->channel_pool));
  HIXLD_ASSIGN_OR_RETURN(const auto path, fields.String("local_comm_res_path"));
  if (path && path->empty()) return fields.Bad("local_comm_res_path", "the path of a file");
  *comm_res_path = path.value_or("");
  NoteResources(object, sources);
  return absl::OkStatus();
}

// The text of LocalCommRes, from the option or, if that is empty, from the named file.
absl::Status ResolveCommRes(const OptionsContext& context, const std::string& path,
                            OptionMap* options, Sources* sources) {
  const std::string* value = FindOption(*options, kCommRes);
  if (value != nullptr && !value->empty()) return absl::OkStatus();
  options->erase(kCommRes);
  if (path.empty()) return absl::OkStatus();
  auto content = context.read_file(path);
  if (!content.ok()) {
    return Annotate(content.status(), "option GlobalResourceConfig: local_comm_res_path");
  }
  (*options)[kCommRes] = *std::move(content);
  sources->Set(kCommRes, absl::StrCat("file ", path));
  return absl::OkStatus();
}

// An endpoint list of which protocol_desc leaves nothing cannot make a link.
absl::Status CheckFilter(const LocalCommRes& resources, const std::vector<std::string>& allowed) {
  if (resources.endpoints.empty() || allowed.empty()) return absl::OkStatus();
  for (const std::string& endpoint : resources.endpoints) {
    if (std::find(allowed.begin(), allowed.end(), endpoint) != allowed.end()) {
      return absl::OkStatus();
    }
  }
  const std::string listed = absl::StrJoin(resources.endpoints, ", ");
  return ParamInvalid(
      absl::StrCat("comm_resource_config.protocol_desc (", absl::StrJoin(allowed, ", "),
                   ") leaves no endpoint of LocalCommRes (", listed, ")"),
      {.object = "option GlobalResourceConfig",
       .option = "comm_resource_config.protocol_desc",
       .allowed = listed});
}

// The endpoints that LocalCommRes lists, as far as protocol_desc allows them; else what
// protocol_desc names.
void SetEndpoints(const LocalCommRes& resources, EngineOptions* parsed) {
  if (resources.endpoints.empty()) {
    parsed->endpoints = parsed->protocols;
    return;
  }
  for (const std::string& endpoint : resources.endpoints) {
    const auto& allowed = parsed->protocols;
    if (allowed.empty() || std::find(allowed.begin(), allowed.end(), endpoint) != allowed.end()) {
      parsed->endpoints.push_back(endpoint);
    }
  }
}

// The first rule that applies decides (contract 3.3).
absl::Status SelectKind(const OptionsContext& context, bool fabric, const OptionMap& options,
                        EngineOptions* parsed, Sources* sources) {
  LocalCommRes resources;
  const std::string* text = FindOption(options, kCommRes);
  if (text != nullptr) {
    HIXLD_ASSIGN_OR_RETURN(resources, ParseLocalCommRes(*text));
    HIXLD_RETURN_IF_ERROR(CheckFilter(resources, parsed->protocols));
  }
  parsed->net_instance_id = resources.net_instance_id;
  parsed->generates_endpoints = resources.version == "1.3" && resources.endpoints.empty();
  SetEndpoints(resources, parsed);
  const auto choose = [&](EngineKind kind, std::string reason) {
    parsed->kind = kind;
    sources->Set(kEngine, std::move(reason));
    return absl::OkStatus();
  };
  if (fabric) return choose(EngineKind::kFabric, kFabric);
  if (text != nullptr) {
    return choose(resources.version == "1.3" ? EngineKind::kHixl : EngineKind::kComm,
                  absl::StrCat("LocalCommRes version ", resources.version.substr(0, 20)));
  }
  if (!parsed->protocols.empty()) return choose(EngineKind::kHixl, kProtocolDesc);
  if (absl::StrContains(context.soc_name, k950)) {
    return choose(EngineKind::kHixl, absl::StrCat("product ", context.soc_name));
  }
  return choose(EngineKind::kComm, "default");
}

// What this kind of engine does not take (contract 3.1, column "Engines").
absl::Status CheckWhiteList(const OptionMap& options, const EngineOptions& parsed) {
  if (parsed.kind == EngineKind::kComm) return absl::OkStatus();
  if (parsed.kind == EngineKind::kHixl) {
    const std::string* value = FindOption(options, kFabric);
    if (value != nullptr && !value->empty()) {
      return BadOption(kFabric, *value,
                       "absent with LocalCommRes 1.3, protocol_desc or an Ascend950");
    }
  }
  const std::string* pool = FindOption(options, kBufferPool);
  if (pool != nullptr && !pool->empty() && *pool != "0:0") {
    return BadOption(kBufferPool, *pool,
                     absl::StrCat("\"0:0\" or absent with the ", EngineKindName(parsed.kind),
                                  " engine that the other options ask for"));
  }
  return absl::OkStatus();
}

// What an operator shall see: every setting, its value, where it came from.
std::vector<EffectiveOption> Effective(const OptionMap& given, const EngineOptions& parsed,
                                       const Sources& sources) {
  std::vector<EffectiveOption> all;
  const auto add = [&](const std::string& name, std::string value) {
    const std::string* option = FindOption(given, name.c_str());
    all.push_back(
        {name, std::move(value), sources.Of(name, option != nullptr && !option->empty())});
  };
  const auto number = [&](const char* name, int64_t value) { add(name, absl::StrCat(value)); };
  const auto flag = [&](const char* name, bool value) { add(name, value ? "1" : "0"); };
  add(kEngine, EngineKindName(parsed.kind));
  number(kTrafficClass, parsed.traffic_class);
  number(kServiceLevel, parsed.service_level);
  add(kBufferPool, absl::StrCat(parsed.relay_buffers, ":", parsed.relay_buffer_mib));
  flag(kFabric, parsed.kind == EngineKind::kFabric);
  flag(kAutoConnect, parsed.auto_connect);
  const std::string* resources = FindOption(given, kCommRes);
  if (resources != nullptr) add(kCommRes, resources->substr(0, kMaxShownBytes));
  number("connect_pool.thread_num", parsed.connect_threads);
  number("connect_pool.task_queue_capacity", parsed.connect_queue_capacity);
  if (!parsed.protocols.empty()) add(kProtocolDesc, absl::StrJoin(parsed.protocols, ", "));
  if (parsed.listen_port != 0) number("comm_resource_config.listen_port", parsed.listen_port);
  number("comm_resource_config.qos", parsed.qos);
  number("comm_resource_config.max_active_channels", parsed.max_active_channels);
  if (parsed.pools_channels()) {
    number("channel_pool.max_channel", parsed.channel_pool.max_channels);
    add("channel_pool.high_waterline", absl::StrCat(*parsed.channel_pool.high_waterline));
    add("channel_pool.low_waterline", absl::StrCat(*parsed.channel_pool.low_waterline));
  }
  if (parsed.kind == EngineKind::kFabric) {
    number("fabric_memory.max_capacity", parsed.fabric.max_capacity_tib);
    number("fabric_memory.start_address", parsed.fabric.start_address_tib);
    number("fabric_memory.task_stream_num", parsed.fabric.task_streams);
    add("fabric_memory.enable_aicpu_unfold", parsed.fabric.aicpu_unfold ? "true" : "false");
  }
  if (parsed.force_roce) add(kIntraRoce, "1");
  return all;
}

absl::StatusOr<std::string> ReadCommResFile(const std::string& path) {
  const auto bad = [&path](const std::string& reason) {
    return ParamInvalid(
        absl::StrCat(path, " ", reason),
        {.object = absl::StrCat("file ", path),
         .option = "local_comm_res_path",
         .allowed = absl::StrCat("a regular file of 1..", kMaxCommResFileBytes, " bytes")});
  };
  // Non-blocking: opening a pipe must not wait for a writer.
  UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd.valid()) return bad("cannot be opened");
  struct stat st;
  if (fstat(fd.get(), &st) != 0 || !S_ISREG(st.st_mode)) return bad("is not a regular file");
  if (st.st_size < 1 || st.st_size > static_cast<off_t>(kMaxCommResFileBytes)) {
    return bad(absl::StrCat("has ", st.st_size, " bytes"));
  }
  std::string content(static_cast<size_t>(st.st_size), '\0');
  size_t done = 0;
  while (done < content.size()) {
    const ssize_t got = read(fd.get(), content.data() + done, content.size() - done);
    if (got <= 0) return bad("cannot be read");
    done += static_cast<size_t>(got);
  }
  return content;
}

}  // namespace

const char* EngineKindName(EngineKind kind) {
  switch (kind) {
    case EngineKind::kComm:
      return "Comm";
    case EngineKind::kHixl:
      return "Hixl";
    case EngineKind::kFabric:
      return "Fabric";
  }
  return "unknown";
}

namespace {

absl::Status ParseDirect(const OptionsContext& context, bool* direct) {
  const std::string text = context.getenv("HIXLD_DIRECT").value_or("");
  if (!text.empty() && text != "on" && text != "off") {
    return ParamInvalid(absl::StrCat("HIXLD_DIRECT is \"", text, "\""),
                        {.object = "HIXLD_DIRECT", .option = "HIXLD_DIRECT", .allowed = "on, off"});
  }
  *direct = text != "off";
  return absl::OkStatus();
}

}  // namespace

OptionsContext OptionsContext::System() {
  return {.getenv = [](const char* name) -> std::optional<std::string> {
            const char* value = std::getenv(name);
            return value == nullptr ? std::nullopt : std::optional<std::string>(value);
          },
          .read_file = ReadCommResFile,
          .soc_name = ""};
}

absl::StatusOr<EngineOptions> ParseOptions(const OptionMap& options,
                                           const OptionsContext& context) {
  HIXLD_ASSIGN_OR_RETURN(OptionMap plain, ResolveAliases(options));
  EngineOptions parsed;
  Sources sources;
  HIXLD_RETURN_IF_ERROR(ParseRdmaNumber(context, kTrafficClass, "HCCL_RDMA_TC", 255, 4, &plain,
                                        &sources, &parsed.traffic_class));
  HIXLD_RETURN_IF_ERROR(ParseRdmaNumber(context, kServiceLevel, "HCCL_RDMA_SL", 7, 1, &plain,
                                        &sources, &parsed.service_level));
  HIXLD_RETURN_IF_ERROR(ParseBufferPool(plain, &parsed));
  HIXLD_ASSIGN_OR_RETURN(const auto fabric, ParseSwitch(plain, kFabric, true));
  HIXLD_ASSIGN_OR_RETURN(const auto auto_connect, ParseSwitch(plain, kAutoConnect, false));
  parsed.auto_connect = auto_connect.value_or(false);
  std::string comm_res_path;
  HIXLD_RETURN_IF_ERROR(ParseResources(plain, &parsed, &sources, &comm_res_path));
  HIXLD_RETURN_IF_ERROR(ResolveCommRes(context, comm_res_path, &plain, &sources));
  HIXLD_RETURN_IF_ERROR(SelectKind(context, fabric.value_or(false), plain, &parsed, &sources));
  HIXLD_RETURN_IF_ERROR(CheckWhiteList(plain, parsed));
  HIXLD_RETURN_IF_ERROR(ParseDirect(context, &parsed.direct));
  parsed.force_roce = context.getenv(kIntraRoce).value_or("") == "1";
  if (parsed.force_roce) sources.Set(kIntraRoce, "environment");
  // A channel pool makes transfers connect by themselves (contract 3.2).
  if (parsed.pools_channels() && !parsed.auto_connect) {
    parsed.auto_connect = true;
    sources.Set(kAutoConnect, "channel_pool.high_waterline");
  }
  // Only the default engine relays.
  if (parsed.kind != EngineKind::kComm) parsed.relay_buffers = parsed.relay_buffer_mib = 0;
  parsed.effective = Effective(plain, parsed, sources);
  // By this the daemon knows what unregistered memory means to the engine (contract 1.8, 1.11).
  if (parsed.kind != EngineKind::kComm) {
    plain.erase(kBufferPool);
  } else if (plain[kBufferPool].empty()) {
    plain[kBufferPool] = absl::StrCat(parsed.relay_buffers, ":", parsed.relay_buffer_mib);
  }
  parsed.for_daemon = std::move(plain);
  return parsed;
}

}  // namespace hixld::client
