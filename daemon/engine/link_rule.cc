#include "daemon/engine/link_rule.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/base/status.h"

namespace hixld {
namespace {

// In order of preference (contract 3.4). "ub_ctp" stands for any pair of its endpoints.
constexpr const char* kSamePod[] = {"fabric:device", "ub_ctp",      "hccs:device", "uboe:device",
                                    "ub_rtp:device", "roce:device", "roce:host"};
constexpr const char* kOtherPod[] = {"fabric:device", "uboe:device", "ub_rtp:device", "roce:device",
                                     "roce:host"};
constexpr char kUbCtp[] = "ub_ctp";

bool Has(const EndpointSet& set, absl::string_view endpoint) {
  const auto& all = set.endpoints;
  if (endpoint == kUbCtp) {
    return std::any_of(all.begin(), all.end(), [](const std::string& candidate) {
      return candidate == "ub_ctp:device" || candidate == "ub_ctp:host";
    });
  }
  return std::find(all.begin(), all.end(), endpoint) != all.end();
}

std::string Describe(const std::string& engine, const EndpointSet& set) {
  return absl::StrCat(engine, " (", set.product, ") has ", absl::StrJoin(set.endpoints, ", "));
}

constexpr const char* Placement(MemoryType type) {
  return type == MemoryType::kDevice ? "ub_ctp:device" : "ub_ctp:host";
}

}  // namespace

absl::StatusOr<std::shared_ptr<const LinkRule>> LinkRule::Make(const std::string& initiator,
                                                               const EndpointSet& initiator_has,
                                                               const std::string& target,
                                                               const EndpointSet& target_has) {
  if (initiator_has.empty() || target_has.empty()) return nullptr;
  const bool same = initiator_has.net_instance == target_has.net_instance;
  const auto try_all = [&](const auto& preferred) -> std::string {
    for (const char* protocol : preferred) {
      if (Has(initiator_has, protocol) && Has(target_has, protocol)) return protocol;
    }
    return "";
  };
  const std::string protocol = same ? try_all(kSamePod) : try_all(kOtherPod);
  if (protocol.empty()) {
    return ParamInvalid(
        absl::StrCat("the engines have no protocol in common ",
                     same ? "inside one super pod" : "between super pods", ": ",
                     Describe(initiator, initiator_has), "; ", Describe(target, target_has)),
        {.object = absl::StrCat("engine ", target),
         .option = "comm_resource_config.protocol_desc, LocalCommRes",
         .allowed = same ? absl::StrJoin(kSamePod, ", ") : absl::StrJoin(kOtherPod, ", ")});
  }
  std::shared_ptr<LinkRule> rule(new LinkRule);
  rule->protocol_ = protocol;
  rule->product_ = initiator_has.product;
  if (protocol == kUbCtp) {
    rule->FillUbCtp(initiator_has, target_has);
  } else {
    rule->Fill(ProductFormOf(initiator_has.product));
  }
  return rule;
}

void LinkRule::FillUbCtp(const EndpointSet& initiator_has, const EndpointSet& target_has) {
  for (const MemoryType local : {MemoryType::kDevice, MemoryType::kHost}) {
    for (const MemoryType remote : {MemoryType::kDevice, MemoryType::kHost}) {
      PlacementRule& rule = rules_[static_cast<size_t>(local)][static_cast<size_t>(remote)];
      if (!Has(initiator_has, Placement(local))) {
        rule = {false, "the local engine has no ub_ctp endpoint of that placement"};
      } else if (!Has(target_has, Placement(remote))) {
        rule = {false, "the remote engine has no ub_ctp endpoint of that placement"};
      }
    }
  }
}

void LinkRule::Fill(ProductForm form) {
  const std::string name = protocol_.substr(0, protocol_.find(':'));
  for (const MemoryType local : {MemoryType::kDevice, MemoryType::kHost}) {
    for (const MemoryType remote : {MemoryType::kDevice, MemoryType::kHost}) {
      rules_[static_cast<size_t>(local)][static_cast<size_t>(remote)] =
          PlacementRuleOf(form, name, local, remote);
    }
  }
}

absl::Status LinkRule::Check(size_t descriptor, MemoryType local, MemoryType remote) const {
  const PlacementRule& rule = rules_[static_cast<size_t>(local)][static_cast<size_t>(remote)];
  if (rule.allowed) return absl::OkStatus();
  return Unsupported(
      absl::StrCat("descriptor ", descriptor, ": ", product_, " moves nothing between local ",
                   MemoryTypeName(local), " and remote ", MemoryTypeName(remote), " memory over ",
                   protocol_, ": ", rule.reason),
      {.object = absl::StrCat("descriptor ", descriptor),
       .option = "devices.sim.product_limits",
       .allowed = "see hixlctl devices --rules"});
}

}  // namespace hixld
