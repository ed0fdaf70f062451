// Products and what they allow (contract 3.3 and 7).
#include "daemon/device/product.h"

#include <catch2/catch.hpp>
#include <map>
#include <string>

namespace hixld {
namespace {

constexpr MemoryType kDevice = MemoryType::kDevice;
constexpr MemoryType kHost = MemoryType::kHost;

TEST_CASE("a product's name tells its form") {
  const std::map<std::string, ProductForm> forms = {{"Ascend910B1", ProductForm::kA2},
                                                    {"Ascend910B2C", ProductForm::kA2},
                                                    {"Ascend910B4-1", ProductForm::kA2},
                                                    {"Ascend910_9391", ProductForm::kA3},
                                                    {"Ascend910_9362", ProductForm::kA3},
                                                    {"Ascend950PR_9589", ProductForm::k950Pr},
                                                    {"Ascend950DT_9571", ProductForm::k950Dt},
                                                    {"xAscend950", ProductForm::k950Pr},
                                                    {"Ascend910B", ProductForm::kUnknown},
                                                    {"Ascend910B5", ProductForm::kUnknown},
                                                    {"Ascend310P3", ProductForm::kUnknown},
                                                    {"host", ProductForm::kUnknown},
                                                    {"", ProductForm::kUnknown}};
  for (const auto& [name, form] : forms) {
    INFO(name);
    CHECK(ProductFormOf(name) == form);
  }
  CHECK(ProductFormName(ProductForm::k950Dt) == "950DT");
  CHECK(ProductFormName(ProductForm::kUnknown).empty());
}

TEST_CASE("HCCS: an A2 moves device memory only, an A3 takes host memory on the local side") {
  CHECK(PlacementRuleOf(ProductForm::kA2, "hccs", kDevice, kDevice).allowed);
  CHECK_FALSE(PlacementRuleOf(ProductForm::kA2, "hccs", kHost, kDevice).allowed);
  CHECK_FALSE(PlacementRuleOf(ProductForm::kA2, "hccs", kDevice, kHost).allowed);
  CHECK(PlacementRuleOf(ProductForm::kA3, "hccs", kHost, kDevice).allowed);
  CHECK_FALSE(PlacementRuleOf(ProductForm::kA3, "hccs", kDevice, kHost).allowed);
  CHECK_FALSE(PlacementRuleOf(ProductForm::kA3, "hccs", kHost, kHost).allowed);
}

TEST_CASE("RoCE and fabric memory reach everything, UBoE and UB RTP device memory only") {
  for (const char* protocol : {"roce", "fabric"}) {
    CHECK(PlacementRuleOf(ProductForm::kA3, protocol, kHost, kHost).allowed);
    CHECK(PlacementRuleOf(ProductForm::kA3, protocol, kDevice, kHost).allowed);
  }
  for (const char* protocol : {"uboe", "ub_rtp"}) {
    CHECK(PlacementRuleOf(ProductForm::k950Pr, protocol, kDevice, kDevice).allowed);
    CHECK_FALSE(PlacementRuleOf(ProductForm::k950Pr, protocol, kHost, kDevice).allowed);
    CHECK_FALSE(PlacementRuleOf(ProductForm::k950Pr, protocol, kDevice, kHost).allowed);
  }
}

TEST_CASE("the table shows every protocol of the form with every pair of types and a reason") {
  CHECK(PlacementTable(ProductForm::kUnknown).empty());
  CHECK(PlacementTable(ProductForm::kA2).size() == 2 * 4);
  CHECK(PlacementTable(ProductForm::kA3).size() == 3 * 4);  // fabric memory as well
  CHECK(PlacementTable(ProductForm::k950Dt).size() == 5 * 4);
  for (const auto form : {ProductForm::kA2, ProductForm::kA3, ProductForm::k950Pr}) {
    for (const PlacementRow& row : PlacementTable(form)) {
      INFO(row.protocol);
      CHECK(row.rule.allowed == std::string(row.rule.reason).empty());
    }
  }
}

TEST_CASE("generated endpoints, with RoCE forced or not") {
  CHECK(GeneratedEndpoints(ProductForm::kA2, false).size() == 2);
  CHECK(GeneratedEndpoints(ProductForm::kA2, true) == std::vector<std::string>{"roce:device"});
  CHECK(GeneratedEndpoints(ProductForm::k950Pr, false).front() == "ub_ctp:device");
  CHECK(GeneratedEndpoints(ProductForm::k950Pr, true).empty());
}

TEST_CASE("limits are those of A2 and A3") {
  CHECK(MaxCommLinks(ProductForm::kA2) == 512);
  CHECK(MaxCommLinks(ProductForm::k950Pr) == 0);
  CHECK(MaxRegisteredBytes(ProductForm::kA3, kDevice) == uint64_t{50} << 30);
  CHECK(MaxRegisteredBytes(ProductForm::kA3, kHost) == uint64_t{1} << 40);
  CHECK(MaxRegisteredBytes(ProductForm::k950Dt, kDevice) == 0);
  CHECK(HasFabricMemory(ProductForm::kA3));
  CHECK_FALSE(HasFabricMemory(ProductForm::kA2));
  CHECK_FALSE(HasCommEngine(ProductForm::k950Pr));
}

}  // namespace
}  // namespace hixld
