#include "daemon/engine/options.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "proto/base/status.h"

namespace hixld {
namespace {

// A longer value is refused before anything parses it.
constexpr size_t kMaxOptionBytes = 1 << 20;

absl::Status BadOption(absl::string_view key, absl::string_view value, absl::string_view allowed) {
  return ParamInvalid(
      absl::StrCat("option ", key, " is \"", value.substr(0, 80), "\"; allowed: ", allowed),
      {.object = absl::StrCat("option ", key),
       .option = std::string(key),
       .allowed = std::string(allowed)});
}

absl::Status CheckInteger(absl::string_view key, absl::string_view value, int32_t high,
                          int32_t multiple, absl::string_view allowed) {
  int32_t number = 0;
  if (value.empty()) return absl::OkStatus();
  if (!absl::SimpleAtoi(value, &number) || number < 0 || number > high || number % multiple != 0) {
    return BadOption(key, value, allowed);
  }
  return absl::OkStatus();
}

absl::Status CheckFlag(absl::string_view key, absl::string_view value, bool may_be_empty) {
  if (value == "0" || value == "1" || (may_be_empty && value.empty())) return absl::OkStatus();
  return BadOption(key, value, "0 or 1");
}

// "NUM:SIZE_MB", both above 0, or "0:0".
absl::Status CheckBufferPool(absl::string_view key, absl::string_view value) {
  if (value.empty()) return absl::OkStatus();
  const std::vector<absl::string_view> parts = absl::StrSplit(value, ':');
  uint32_t count = 0;
  uint32_t megabytes = 0;
  if (parts.size() != 2 || !absl::SimpleAtoi(parts[0], &count) ||
      !absl::SimpleAtoi(parts[1], &megabytes) || (count == 0) != (megabytes == 0)) {
    return BadOption(key, value, "NUM:SIZE_MB, both above 0, or 0:0");
  }
  return absl::OkStatus();
}

// A value that CheckBufferPool has passed.
void TakeBufferPool(absl::string_view value, EngineOptions* parsed) {
  const std::vector<absl::string_view> parts = absl::StrSplit(value, ':');
  parsed->relay_buffers = 0;
  uint32_t megabytes = 0;
  if (!absl::SimpleAtoi(parts[0], &parsed->relay_buffers) ||
      !absl::SimpleAtoi(parts[1], &megabytes)) {
    return;
  }
  parsed->relay_buffer_bytes = uint64_t{megabytes} << 20;
  parsed->unregistered = parsed->relay_buffers == 0 ? EngineOptions::Unregistered::kFailed
                                                    : EngineOptions::Unregistered::kRelayed;
}

absl::Status CheckJsonObject(absl::string_view key, absl::string_view value) {
  if (value.empty()) return absl::OkStatus();
  const auto json = nlohmann::json::parse(value.begin(), value.end(), nullptr, false);
  if (json.is_object()) return absl::OkStatus();
  return BadOption(key, value, "one JSON object");
}

absl::Status ReadCount(const nlohmann::json& object, const std::string& key, uint64_t low,
                       uint64_t high, uint64_t* target) {
  const auto found = object.find(key);
  if (found == object.end()) return absl::OkStatus();
  if (found->is_number_unsigned()) {
    const auto value = found->get<uint64_t>();
    if (value >= low && value <= high) {
      *target = value;
      return absl::OkStatus();
    }
  }
  return BadOption(absl::StrCat("GlobalResourceConfig ", key), found->dump(),
                   absl::StrCat("a JSON number in ", low, "..", high));
}

// Upstream ignores keys that it does not know, so a program may set these everywhere.
absl::Status ReadBatching(const std::string& resources, BatchingOptions* batching) {
  const auto object = nlohmann::json::parse(resources, nullptr, false);
  uint64_t window_us = static_cast<uint64_t>(batching->window_ns / 1000);
  HIXLD_RETURN_IF_ERROR(
      ReadCount(object, "hixld.batching.window_us", 0, kMaxBatchingWindowMicros, &window_us));
  HIXLD_RETURN_IF_ERROR(ReadCount(object, "hixld.batching.max_requests", 2, kMaxBatchingRequests,
                                  &batching->max_requests));
  HIXLD_RETURN_IF_ERROR(
      ReadCount(object, "hixld.batching.max_bytes", 4096, kMaxBatchingBytes, &batching->max_bytes));
  batching->window_ns = static_cast<int64_t>(window_us) * 1000;
  return absl::OkStatus();
}

absl::Status CheckOption(absl::string_view key, absl::string_view value) {
  if (value.size() > kMaxOptionBytes) {
    return BadOption(key, value, absl::StrCat("up to ", kMaxOptionBytes, " bytes"));
  }
  const absl::string_view name = absl::StripPrefix(key, "adxl.");
  if (name == "RdmaTrafficClass") {
    return CheckInteger(key, value, 255, 4, "0..255, a multiple of 4");
  }
  if (name == "RdmaServiceLevel") return CheckInteger(key, value, 7, 1, "0..7");
  if (name == "BufferPool") return CheckBufferPool(key, value);
  if (name == "LocalCommRes") return CheckJsonObject(key, value);
  if (key == "EnableUseFabricMem") return CheckFlag(key, value, /*may_be_empty=*/true);
  if (key == "AutoConnect") return CheckFlag(key, value, /*may_be_empty=*/false);
  if (key == "GlobalResourceConfig") return CheckJsonObject(key, value);
  return ParamInvalid(
      absl::StrCat("option ", key.substr(0, 80), " is unknown; allowed: RdmaTrafficClass, ",
                   "RdmaServiceLevel, BufferPool, EnableUseFabricMem, AutoConnect, ",
                   "GlobalResourceConfig, LocalCommRes"),
      {.object = absl::StrCat("option ", key.substr(0, 80)),
       .allowed = "RdmaTrafficClass, RdmaServiceLevel, BufferPool, EnableUseFabricMem, "
                  "AutoConnect, GlobalResourceConfig, LocalCommRes"});
}

absl::Status CheckKind(const Product& product, EngineKind kind) {
  if (kind == EngineKind::kFabric && !HasFabricMemory(product.form)) {
    return Unsupported(absl::StrCat("product ", product.name, " has no fabric memory"),
                       {.object = absl::StrCat("product ", product.name),
                        .option = "EnableUseFabricMem",
                        .allowed = "\"0\" or absent; fabric memory needs an A3"});
  }
  if (kind == EngineKind::kComm && !HasCommEngine(product.form)) {
    return ParamInvalid(
        absl::StrCat("product ", product.name, " takes LocalCommRes of version 1.3 only"),
        {.object = absl::StrCat("product ", product.name),
         .option = "LocalCommRes",
         .allowed = "version 1.3, or absent"});
  }
  return absl::OkStatus();
}

absl::Status CheckEndpoints(const Product& product, const std::vector<std::string>& endpoints) {
  const std::vector<std::string>& known = ProductProtocols(product.form);
  for (const std::string& endpoint : endpoints) {
    if (std::find(known.begin(), known.end(), endpoint) != known.end()) continue;
    return ParamInvalid(absl::StrCat("product ", product.name, " has no ", endpoint.substr(0, 80)),
                        {.object = absl::StrCat("product ", product.name),
                         .option = "comm_resource_config.protocol_desc, LocalCommRes",
                         .allowed = absl::StrJoin(known, ", ")});
  }
  return absl::OkStatus();
}

// A checked number, from whichever spelling of the key was given; the plain one wins.
std::optional<uint8_t> NumberOf(const std::map<std::string, std::string>& options,
                                const std::string& name) {
  for (const std::string& key : {name, absl::StrCat("adxl.", name)}) {
    const auto found = options.find(key);
    uint32_t number = 0;
    if (found == options.end()) continue;
    if (absl::SimpleAtoi(found->second, &number)) return static_cast<uint8_t>(number);
  }
  return std::nullopt;
}

}  // namespace

EngineKind EngineKindOf(absl::string_view name) {
  for (const EngineKind kind : {EngineKind::kComm, EngineKind::kHixl, EngineKind::kFabric}) {
    if (EngineKindName(kind) == name) return kind;
  }
  return EngineKind::kUnknown;
}

absl::string_view EngineKindName(EngineKind kind) {
  switch (kind) {
    case EngineKind::kComm:
      return "Comm";
    case EngineKind::kHixl:
      return "Hixl";
    case EngineKind::kFabric:
      return "Fabric";
    case EngineKind::kUnknown:
      break;
  }
  return "";
}

absl::Status ApplyProduct(const Product& product, const std::string& node, EngineOptions* options) {
  if (!product.limits) return absl::OkStatus();
  HIXLD_RETURN_IF_ERROR(CheckKind(product, options->profile.kind));
  HIXLD_RETURN_IF_ERROR(CheckEndpoints(product, options->profile.endpoints));
  EndpointSet& set = options->endpoints;
  set.product = product.name;
  set.net_instance =
      options->profile.net_instance_id.empty() ? node : options->profile.net_instance_id;
  if (options->profile.kind == EngineKind::kFabric) {
    set.endpoints = {"fabric:device"};
  } else if (!options->profile.endpoints.empty()) {
    set.endpoints = options->profile.endpoints;
  } else {
    set.endpoints = GeneratedEndpoints(product.form, options->profile.force_roce);
  }
  if (set.endpoints.empty()) {
    return ParamInvalid(
        absl::StrCat("no endpoint of product ", product.name, " is left for this engine"),
        {.object = absl::StrCat("product ", product.name),
         .option = "HCCL_INTRA_ROCE_ENABLE",
         .allowed = absl::StrJoin(ProductProtocols(product.form), ", ")});
  }
  options->form = product.form;
  options->profile.effective.push_back({.name = "endpoints",
                                        .value = absl::StrJoin(set.endpoints, ", "),
                                        .source = absl::StrCat("product ", product.name)});
  return absl::OkStatus();
}

absl::StatusOr<EngineOptions> ParseEngineOptions(const std::map<std::string, std::string>& options,
                                                 const BatchingOptions& batching) {
  for (const auto& [key, value] : options) HIXLD_RETURN_IF_ERROR(CheckOption(key, value));
  EngineOptions parsed;
  const auto auto_connect = options.find("AutoConnect");
  parsed.auto_connect = auto_connect != options.end() && auto_connect->second == "1";
  parsed.batching = batching;
  const auto resources = options.find("GlobalResourceConfig");
  if (resources != options.end() && !resources->second.empty()) {
    HIXLD_RETURN_IF_ERROR(ReadBatching(resources->second, &parsed.batching));
  }
  parsed.traffic_class = NumberOf(options, "RdmaTrafficClass");
  parsed.service_level = NumberOf(options, "RdmaServiceLevel");
  parsed.given = options;
  for (const char* key : {"adxl.BufferPool", "BufferPool"}) {
    const auto pool = options.find(key);
    if (pool != options.end() && !pool->second.empty()) TakeBufferPool(pool->second, &parsed);
  }
  return parsed;
}

}  // namespace hixld
