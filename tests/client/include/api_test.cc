// Every name, number and layout of the public headers (contract 0.2 to 0.4, 1.1, 1.2), as C++14.
#include <catch2/catch.hpp>
#include <cstddef>
#include <map>
#include <string>
#include <type_traits>
#include <unordered_set>
#include <vector>

#include "external/ge_common/api_error_codes.h"
#include "hixl/hixl.h"
#include "hixl/hixl_ext.h"
#include "hixl/hixl_types.h"

namespace {

using ge::AscendString;

static_assert(__cplusplus == 201402L, "programs of C++14 include these headers");

static_assert(std::is_same<hixl::Status, uint32_t>::value, "");
static_assert(std::is_same<hixl::AscendString, ge::AscendString>::value, "");
static_assert(std::is_same<hixl::TransferReq, void*>::value, "");
static_assert(std::is_same<hixl::MemHandle, void*>::value, "");
static_assert(hixl::SUCCESS == 0 && hixl::PARAM_INVALID == 103900 && hixl::TIMEOUT == 103901, "");
static_assert(hixl::NOT_CONNECTED == 103902 && hixl::ALREADY_CONNECTED == 103903, "");
static_assert(hixl::NOTIFY_FAILED == 103904 && hixl::UNSUPPORTED == 103905, "");
static_assert(hixl::FAILED == 503900 && hixl::RESOURCE_EXHAUSTED == 203900, "");
static_assert(hixl::FEATURE_SUPPORTED == 1 && hixl::FEATURE_NOT_SUPPORTED == 0, "");
static_assert(hixl::AUTO_CONNECT == 0 && hixl::CLIENT_SERVER_COMM == 1, "");
static_assert(sizeof(hixl::FeatureType) == 4, "");
static_assert(hixl::MEM_DEVICE == 0 && hixl::MEM_HOST == 1, "");
static_assert(hixl::READ == 0 && hixl::WRITE == 1, "");
static_assert(static_cast<int>(hixl::TransferStatus::WAITING) == 0, "");
static_assert(static_cast<int>(hixl::TransferStatus::COMPLETED) == 1, "");
static_assert(static_cast<int>(hixl::TransferStatus::TIMEOUT) == 2, "");
static_assert(static_cast<int>(hixl::TransferStatus::FAILED) == 3, "");
static_assert(static_cast<int>(hixl::AsyncConnectStatus::NOT_CONNECT) == 0, "");
static_assert(static_cast<int>(hixl::AsyncConnectStatus::CONNECT_PENDING) == 1, "");
static_assert(static_cast<int>(hixl::AsyncConnectStatus::CONNECTING) == 2, "");
static_assert(static_cast<int>(hixl::AsyncConnectStatus::CONNECTED) == 3, "");
static_assert(static_cast<int>(hixl::AsyncConnectStatus::CONNECT_FAILED) == 4, "");
static_assert(static_cast<int>(hixl::AsyncConnectStatus::DISCONNECT_PENDING) == 5, "");
static_assert(static_cast<int>(hixl::AsyncConnectStatus::DISCONNECTING) == 6, "");

static_assert(offsetof(hixl::MemDesc, addr) == 0 && offsetof(hixl::MemDesc, len) == 8, "");
static_assert(offsetof(hixl::MemDesc, reserved) == 16 && sizeof(hixl::MemDesc) == 144, "");
static_assert(sizeof(hixl::TransferOpDesc) == 24, "");
static_assert(offsetof(hixl::TransferOpDesc, remote_addr) == 8, "");
static_assert(offsetof(hixl::TransferOpDesc, len) == 16, "");
static_assert(sizeof(hixl::TransferArgs) == 128, "");
static_assert(offsetof(hixl::TransferArgs, reserved) == 8, "");
static_assert(sizeof(hixl::GetTransferStatusArgs) == 128, "");
static_assert(offsetof(hixl::GetTransferStatusArgs, skip_waiting) == 4, "");
static_assert(offsetof(hixl::GetTransferStatusArgs, reserved) == 5, "");
static_assert(sizeof(hixl::TransferResult) == 128, "");
static_assert(offsetof(hixl::TransferResult, user_data) == 8, "");
static_assert(offsetof(hixl::TransferResult, status) == 16, "");
static_assert(offsetof(hixl::TransferResult, reserved) == 20, "");
static_assert(sizeof(hixl::Hixl) == 8, "");
static_assert(!std::is_copy_constructible<hixl::Hixl>::value, "");
static_assert(!std::is_move_constructible<hixl::Hixl>::value, "");
static_assert(sizeof(AscendString) == 16, "");
static_assert(sizeof(hixl::InitializeExtArgs) == 128, "");

static_assert(ge::SUCCESS == 0 && ge::FAILED == 0xFFFFFFFF, "");
static_assert(ge::PARAM_INVALID == 0x50100001 && ge::END_OF_SEQUENCE == 0x50100007, "");
static_assert(ge::DT_FLOAT == 0 && ge::DT_UINT8 == 4 && ge::DT_INT16 == 6 && ge::DT_BOOL == 12, "");
static_assert(ge::DT_STRING == 13 && ge::DT_DUAL_SUB_UINT8 == 15 && ge::DT_QUINT16 == 22, "");
static_assert(ge::DT_VARIANT == 26 && ge::DT_BF16 == 27 && ge::DT_UNDEFINED == 28, "");
static_assert(ge::DT_INT4 == 29 && ge::DT_COMPLEX32 == 33 && ge::DT_FLOAT8_E8M0 == 37, "");
static_assert(ge::DT_FLOAT4_E1M2 == 41 && ge::DT_HIFLOAT4 == 42 && ge::DT_MAX == 43, "");

GE_ERRORNO_DEFINE(0b01, 0b01, 0b000, 8, 11, kTestCode, 2);
static_assert(kTestCode == 0x5010B002, "");
GE_ERRORNO(0b01, 0b01, 0b000, 8, 11, kTestCodeWithText, 3, "three");
GE_ERRORNO_EXTERNAL(kTestCode, std::string("two"));

TEST_CASE("option keys") {
  CHECK(std::string(hixl::OPTION_ENABLE_USE_FABRIC_MEM) == "EnableUseFabricMem");
  CHECK(std::string(hixl::OPTION_RDMA_TRAFFIC_CLASS) == "RdmaTrafficClass");
  CHECK(std::string(hixl::OPTION_RDMA_SERVICE_LEVEL) == "RdmaServiceLevel");
  CHECK(std::string(hixl::OPTION_BUFFER_POOL) == "BufferPool");
  CHECK(std::string(hixl::OPTION_GLOBAL_RESOURCE_CONFIG) == "GlobalResourceConfig");
  CHECK(std::string(hixl::OPTION_AUTO_CONNECT) == "AutoConnect");
  CHECK(std::string(hixl::OPTION_LOCAL_COMM_RES) == "LocalCommRes");
  CHECK(std::string(ge::OPTION_EXEC_DEVICE_ID) == "ge.exec.deviceId");
  CHECK(std::string(ge::OPTION_SESSION_DEVICE_ID) == "ge.session_device_id");
}

TEST_CASE("defaults of the structs") {
  hixl::MemDesc desc{};
  desc.addr = 1;
  desc.len = 2;
  CHECK(desc.reserved[127] == 0);
  const hixl::TransferOpDesc piece{1, 2, 3};
  CHECK(piece.remote_addr == 2);
  const std::vector<hixl::TransferOpDesc> list = {piece};
  CHECK(list.size() == 1);
  const hixl::TransferArgs args = {};
  CHECK(args.user_data == nullptr);
  const hixl::GetTransferStatusArgs status;
  CHECK(status.max_query_count == UINT32_MAX);
  CHECK_FALSE(status.skip_waiting);
  const hixl::TransferResult result;
  CHECK(result.req == nullptr);
  CHECK(result.status == hixl::TransferStatus::WAITING);
  std::vector<hixl::Hixl> engines(4);
  CHECK(engines.size() == 4);
}

TEST_CASE("AscendString: null, empty and text are three things") {
  const char* nothing = nullptr;
  const AscendString null;
  const AscendString also_null(nothing);
  const AscendString null_with_length(nothing, 3);
  const AscendString empty("");
  const AscendString text("text");
  const AscendString with_nul("a\0b", 3);
  CHECK(std::string(null.GetString()).empty());
  CHECK(null.GetLength() == 0);
  CHECK(null == also_null);
  CHECK(null == null_with_length);
  CHECK(null != empty);
  CHECK(null < empty);
  CHECK(empty < text);
  CHECK_FALSE(null < also_null);
  CHECK(null <= also_null);
  CHECK(null >= also_null);
  CHECK(text > null);
  CHECK_FALSE(null > text);
  CHECK(with_nul.GetLength() == 3);
  CHECK(with_nul.GetString()[2] == 'b');
  CHECK(null == nothing);
  CHECK(null != "");
  CHECK(empty == "");
  CHECK(empty != nothing);
  CHECK(text == "text");
  CHECK(text != "Text");
  CHECK(text.Find("ex") == 1);
  CHECK(text.Find("no") == std::string::npos);
  CHECK(text.Find(null) == std::string::npos);
  CHECK(null.Find(text) == std::string::npos);
  CHECK(text.Find("") == 0);
  CHECK(null.Hash() == empty.Hash());
  CHECK(text.Hash() == AscendString("text").Hash());
  const AscendString copy = text;
  CHECK(copy.GetString() == text.GetString());
}

TEST_CASE("AscendString is used as programs use it") {
  std::map<AscendString, AscendString> options;
  options[hixl::OPTION_AUTO_CONNECT] = "1";
  options["BufferPool"] = "4:8";
  const std::string value = "x";
  options[hixl::OPTION_LOCAL_COMM_RES] = value.c_str();
  const std::map<AscendString, AscendString> braces{{hixl::OPTION_LOCAL_COMM_RES, R"({"a":1})"}};
  CHECK(options.size() == 3);
  CHECK(braces.at("LocalCommRes") == R"({"a":1})");
  const auto pick = [](bool first) { return first ? AscendString("a") : AscendString("b"); };
  CHECK(pick(false) == "b");
  std::unordered_set<AscendString> set = {"a", "b", "a"};
  CHECK(set.size() == 2);
}

TEST_CASE("codes have texts") {
  ge::StatusFactory* factory = ge::StatusFactory::Instance();
  CHECK(factory->GetErrDesc(kTestCodeWithText) == "three");
  CHECK(factory->GetErrDescV2(kTestCode) == "two");
  CHECK(factory->GetErrDesc(12345).empty());
  factory->RegisterErrorNo(kTestCode, "another");
  CHECK(factory->GetErrDesc(kTestCode) == "two");
  factory->RegisterErrorNo(99, nullptr);
  CHECK_FALSE(factory->GetErrDesc(ge::FAILED).empty());
}

}  // namespace
