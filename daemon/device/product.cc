#include "daemon/device/product.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace hixld {
namespace {

constexpr const char* kA2Names[] = {"Ascend910B1", "Ascend910B2",  "Ascend910B3",
                                    "Ascend910B4", "Ascend910B2C", "Ascend910B4-1"};
constexpr const char* kA3Names[] = {"Ascend910_9391", "Ascend910_9381", "Ascend910_9392",
                                    "Ascend910_9382", "Ascend910_9372", "Ascend910_9362"};
constexpr char k950[] = "Ascend950";

constexpr uint64_t kGiB = uint64_t{1} << 30;

template <size_t kCount>
bool Contains(const char* const (&names)[kCount], absl::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

bool Is950(ProductForm form) { return form == ProductForm::k950Pr || form == ProductForm::k950Dt; }

bool IsA2OrA3(ProductForm form) { return form == ProductForm::kA2 || form == ProductForm::kA3; }

PlacementRule HccsRule(ProductForm form, MemoryType local, MemoryType remote) {
  if (form == ProductForm::kA2 && (local == MemoryType::kHost || remote == MemoryType::kHost)) {
    return {false,
            "HCCS of an A2 moves data between devices only; use roce:device for host memory"};
  }
  if (form == ProductForm::kA3 && remote == MemoryType::kHost) {
    return {false,
            "with HCCS of an A3 the remote side must not be host memory; let the side that has "
            "the host memory start the transfer, or use fabric memory"};
  }
  return {};
}

}  // namespace

ProductForm ProductFormOf(absl::string_view product) {
  if (Contains(kA2Names, product)) return ProductForm::kA2;
  if (Contains(kA3Names, product)) return ProductForm::kA3;
  const size_t at = product.find(k950);
  if (at == absl::string_view::npos) return ProductForm::kUnknown;
  return absl::StrContains(product.substr(at), "DT") ? ProductForm::k950Dt : ProductForm::k950Pr;
}

absl::string_view ProductFormName(ProductForm form) {
  switch (form) {
    case ProductForm::kA2:
      return "A2";
    case ProductForm::kA3:
      return "A3";
    case ProductForm::k950Pr:
      return "950PR";
    case ProductForm::k950Dt:
      return "950DT";
    case ProductForm::kUnknown:
      break;
  }
  return "";
}

std::string KnownProducts() {
  return absl::StrCat(absl::StrJoin(kA2Names, ", "), ", ", absl::StrJoin(kA3Names, ", "),
                      ", Ascend950PR, Ascend950DT");
}

const std::vector<std::string>& ProductProtocols(ProductForm form) {
  static const auto* const none = new std::vector<std::string>;
  static const auto* const a2_a3 = new std::vector<std::string>{"hccs:device", "roce:device"};
  static const auto* const ub = new std::vector<std::string>{
      "uboe:device", "ub_rtp:device", "ub_ctp:device", "ub_ctp:host", "roce:host"};
  if (IsA2OrA3(form)) return *a2_a3;
  return Is950(form) ? *ub : *none;
}

std::vector<std::string> GeneratedEndpoints(ProductForm form, bool force_roce) {
  std::vector<std::string> endpoints;
  if (IsA2OrA3(form)) endpoints = {"hccs:device", "roce:device"};
  if (Is950(form)) endpoints = {"ub_ctp:device", "ub_ctp:host"};
  if (force_roce) {
    endpoints.erase(
        std::remove_if(endpoints.begin(), endpoints.end(),
                       [](const std::string& e) { return !absl::StartsWith(e, "roce:"); }),
        endpoints.end());
  }
  return endpoints;
}

bool HasFabricMemory(ProductForm form) { return form == ProductForm::kA3; }

bool HasCommEngine(ProductForm form) { return IsA2OrA3(form); }

uint64_t MaxCommLinks(ProductForm form) { return IsA2OrA3(form) ? 512 : 0; }

uint64_t MaxRegisteredBytes(ProductForm form, MemoryType type) {
  if (!IsA2OrA3(form)) return 0;
  return type == MemoryType::kDevice ? 50 * kGiB : 1024 * kGiB;
}

PlacementRule PlacementRuleOf(ProductForm form, absl::string_view protocol, MemoryType local,
                              MemoryType remote) {
  if (protocol == "hccs") return HccsRule(form, local, remote);
  const bool host = local == MemoryType::kHost || remote == MemoryType::kHost;
  if ((protocol == "uboe" || protocol == "ub_rtp") && host) {
    return {false, "uboe and ub_rtp endpoints are on the device and reach device memory only"};
  }
  // RoCE and fabric memory reach both; what ub_ctp reaches depends on its endpoints alone.
  return {};
}

std::vector<PlacementRow> PlacementTable(ProductForm form) {
  std::vector<std::string> protocols = ProductProtocols(form);
  if (HasFabricMemory(form)) protocols.emplace_back("fabric:device");
  std::vector<PlacementRow> table;
  for (const std::string& description : protocols) {
    const std::string protocol = description.substr(0, description.find(':'));
    for (const MemoryType local : {MemoryType::kDevice, MemoryType::kHost}) {
      for (const MemoryType remote : {MemoryType::kDevice, MemoryType::kHost}) {
        PlacementRow row = {.protocol = description, .local = local, .remote = remote};
        row.rule = PlacementRuleOf(form, protocol, local, remote);
        if (protocol == "ub_ctp") {
          const auto own =
              absl::EndsWith(description, ":host") ? MemoryType::kHost : MemoryType::kDevice;
          if (local != own || remote != own) {
            row.rule = {false,
                        "a ub_ctp endpoint reaches memory of its own placement only; configure "
                        "ub_ctp:device and ub_ctp:host for both"};
          }
        }
        table.push_back(std::move(row));
      }
    }
  }
  return table;
}

}  // namespace hixld
