// What the products that a device may be (or imitate) allow and refuse (contract 3.3 and 7). Pure
// facts: who applies them decides when they count.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "daemon/memory/region.h"

namespace hixld {

enum class ProductForm : uint8_t { kUnknown, kA2, kA3, k950Pr, k950Dt };

// By the product's name: "Ascend910B3" is an A2, "Ascend910_9391" an A3, whatever contains
// "Ascend950" a 950PR or, with "DT" behind it, a 950DT.
ProductForm ProductFormOf(absl::string_view product);
// "A2", ...; "" for an unknown one.
absl::string_view ProductFormName(ProductForm form);
// Names that stand for known forms, for messages.
std::string KnownProducts();

// A device's product, and whether what it refuses is refused here.
struct Product {
  std::string name;
  ProductForm form = ProductForm::kUnknown;
  bool limits = false;
};

// The protocol descriptions ("hccs:device", ...) that options may name.
const std::vector<std::string>& ProductProtocols(ProductForm form);
// What is generated where the options name no endpoints; with `force_roce` what RoCE is of it
// (HCCL_INTRA_ROCE_ENABLE). May be empty.
std::vector<std::string> GeneratedEndpoints(ProductForm form, bool force_roce);
bool HasFabricMemory(ProductForm form);
// Whether LocalCommRes 1.0 and 1.2 (and none at all) mean something to it.
bool HasCommEngine(ProductForm form);
// Links of an engine without LocalCommRes 1.3; 0: no limit.
uint64_t MaxCommLinks(ProductForm form);
// Bytes that one engine may register of each type; 0: nothing is said.
uint64_t MaxRegisteredBytes(ProductForm form, MemoryType type);

// Whether `protocol` ("hccs", ...) moves data between memory of these types. The local side is
// the one that starts the transfer; which way the bytes go makes no difference.
struct PlacementRule {
  bool allowed = true;
  const char* reason = "";  // why not
};
PlacementRule PlacementRuleOf(ProductForm form, absl::string_view protocol, MemoryType local,
                              MemoryType remote);

// The whole table, for operators: every protocol of the form with every pair of types.
struct PlacementRow {
  std::string protocol;  // "hccs:device"
  MemoryType local = MemoryType::kHost;
  MemoryType remote = MemoryType::kHost;
  PlacementRule rule;
};
std::vector<PlacementRow> PlacementTable(ProductForm form);

}  // namespace hixld
