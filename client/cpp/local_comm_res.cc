#include "client/cpp/local_comm_res.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cctype>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cpp/json_fields.h"
#include "proto/base/status.h"

namespace hixld::client {
namespace {

using nlohmann::json;

constexpr char kOption[] = "LocalCommRes";
constexpr const char* kProtocols[] = {"roce", "hccs", "ub_ctp", "uboe", "ub_rtp"};

bool IsIpLiteral(const std::string& text) {
  unsigned char address[16];
  return inet_pton(AF_INET, text.c_str(), address) == 1 ||
         inet_pton(AF_INET6, text.c_str(), address) == 1;
}

bool AllOf(const std::string& text, int (*test)(int)) {
  return std::all_of(text.begin(), text.end(),
                     [test](char c) { return test(static_cast<unsigned char>(c)) != 0; });
}

absl::Status CheckCommId(const JsonFields& fields, const std::string& protocol,
                         const std::string& id) {
  if (protocol == "roce" || protocol == "uboe") {
    if (!IsIpLiteral(id)) return fields.Bad("comm_id", "an IP address, for roce and uboe");
  } else if (protocol == "hccs") {
    if (id.empty() || id.size() > 10 || !AllOf(id, isdigit)) {
      return fields.Bad("comm_id", "1 to 10 decimal digits, for hccs");
    }
  } else if (id.size() != 32 || !AllOf(id, isxdigit)) {
    return fields.Bad("comm_id", "32 hexadecimal digits, for ub_ctp and ub_rtp");
  }
  return absl::OkStatus();
}

// Returns "protocol:placement".
absl::StatusOr<std::string> ParseEndpointEntry(const json& entry) {
  const JsonFields fields(entry, "LocalCommRes endpoint_list");
  HIXLD_ASSIGN_OR_RETURN(const auto protocol, fields.String("protocol"));
  HIXLD_ASSIGN_OR_RETURN(const auto comm_id, fields.String("comm_id"));
  HIXLD_ASSIGN_OR_RETURN(const auto placement, fields.String("placement"));
  if (!protocol ||
      std::find(std::begin(kProtocols), std::end(kProtocols), *protocol) == std::end(kProtocols)) {
    return fields.Bad("protocol", "roce, hccs, ub_ctp, uboe or ub_rtp");
  }
  if (!placement || (*placement != "device" && *placement != "host")) {
    return fields.Bad("placement", "device or host");
  }
  if (!comm_id) return fields.Bad("comm_id", "a string");
  HIXLD_RETURN_IF_ERROR(CheckCommId(fields, *protocol, *comm_id));
  for (const char* optional : {"plane", "dst_eid", "server_id"}) {
    HIXLD_RETURN_IF_ERROR(fields.String(optional).status());
  }
  const auto info = entry.find("device_info");
  if (info != entry.end() && !info->is_object()) return fields.Bad("device_info", "an object");
  return absl::StrCat(*protocol, ":", *placement);
}

}  // namespace

absl::StatusOr<LocalCommRes> ParseLocalCommRes(const std::string& text) {
  HIXLD_ASSIGN_OR_RETURN(const json object, ParseJsonObject(text, kOption));
  LocalCommRes result;
  const auto version = object.find("version");
  if (version != object.end() && version->is_string()) result.version = version->get<std::string>();
  if (result.version != "1.3") return result;

  const JsonFields fields(object, kOption);
  HIXLD_ASSIGN_OR_RETURN(const auto net_instance, fields.String("net_instance_id"));
  const auto list = object.find("endpoint_list");
  if (list == object.end()) {
    result.net_instance_id = net_instance.value_or("");
    return result;
  }
  if (!list->is_array()) return fields.Bad("endpoint_list", "an array of objects");
  bool rtp = false;
  bool uboe = false;
  for (const json& entry : *list) {
    if (!entry.is_object()) return fields.Bad("endpoint_list", "an array of objects");
    HIXLD_ASSIGN_OR_RETURN(std::string endpoint, ParseEndpointEntry(entry));
    rtp = rtp || endpoint.rfind("ub_rtp:", 0) == 0;
    uboe = uboe || endpoint.rfind("uboe:", 0) == 0;
    result.endpoints.push_back(std::move(endpoint));
  }
  if (rtp && uboe) return fields.Bad("endpoint_list", "ub_rtp or uboe, not both");
  result.net_instance_id = net_instance.value_or("");
  // Without an identity the list is not usable and is generated (contract 3.4).
  if (!net_instance || net_instance->empty()) result.endpoints.clear();
  return result;
}

}  // namespace hixld::client
