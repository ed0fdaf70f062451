// Values, layouts and signatures of the contract (0.2, 0.4, 1.1, 1.2, 1.14). That this compiles is
// most of the test.
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <map>
#include <string>
#include <type_traits>
#include <vector>

#include "adxl/adxl_engine.h"
#include "external/ge_common/api_error_codes.h"
#include "hixl/hixl.h"

#define SAME(left, right) static_assert(std::is_same<left, right>::value, "one type")

// 0.2
SAME(ge::Status, uint32_t);
SAME(ge::char_t, char);
SAME(ge::float32_t, float);
SAME(ge::float64_t, double);
static_assert(ge::SUCCESS == 0 && ge::FAILED == 0xFFFFFFFFU, "");
static_assert(ge::PARAM_INVALID == 0x50100001U && ge::PARAM_INVALID == 1343225857U, "");
static_assert(ge::END_OF_SEQUENCE == 0x50100007U, "");
GE_ERRORNO_DEFINE(1, 1, 0, 8, 11, TEST_CODE, 26);
static_assert(TEST_CODE == 0x5010B01AU, "");
GE_ERRORNO(1, 1, 0, 8, 11, TEST_TEXT, 4095, "a text of the test");

// 0.4
static_assert(ge::DT_FLOAT == 0 && ge::DT_UINT8 == 4 && ge::DT_INT16 == 6, "5 is reserved");
static_assert(ge::DT_STRING == 13 && ge::DT_BF16 == 27 && ge::DT_UNDEFINED == 28, "");
static_assert(ge::DT_INT4 == 29 && ge::DT_COMPLEX32 == 33 && ge::DT_HIFLOAT8 == 34, "");
static_assert(ge::DT_FLOAT8_E8M0 == 37 && ge::DT_FLOAT4_E1M2 == 41 && ge::DT_HIFLOAT4 == 42 &&
                  ge::DT_MAX == 43,
              "");

// 1.1
SAME(hixl::Status, uint32_t);
SAME(hixl::AscendString, ge::AscendString);
SAME(hixl::TransferReq, void*);
SAME(hixl::MemHandle, void*);
static_assert(hixl::SUCCESS == 0 && hixl::PARAM_INVALID == 103900 && hixl::TIMEOUT == 103901 &&
                  hixl::NOT_CONNECTED == 103902 && hixl::ALREADY_CONNECTED == 103903 &&
                  hixl::NOTIFY_FAILED == 103904 && hixl::UNSUPPORTED == 103905 &&
                  hixl::FAILED == 503900 && hixl::RESOURCE_EXHAUSTED == 203900,
              "");
static_assert(hixl::AUTO_CONNECT == 0 && hixl::CLIENT_SERVER_COMM == 1, "");
SAME(std::underlying_type<hixl::FeatureType>::type, int32_t);
static_assert(hixl::FEATURE_SUPPORTED == 1 && hixl::FEATURE_NOT_SUPPORTED == 0, "");
static_assert(hixl::MEM_DEVICE == 0 && hixl::MEM_HOST == 1, "");
static_assert(hixl::READ == 0 && hixl::WRITE == 1, "");
static_assert(static_cast<int>(hixl::TransferStatus::WAITING) == 0 &&
                  static_cast<int>(hixl::TransferStatus::COMPLETED) == 1 &&
                  static_cast<int>(hixl::TransferStatus::TIMEOUT) == 2 &&
                  static_cast<int>(hixl::TransferStatus::FAILED) == 3,
              "");
static_assert(static_cast<int>(hixl::AsyncConnectStatus::NOT_CONNECT) == 0 &&
                  static_cast<int>(hixl::AsyncConnectStatus::CONNECT_PENDING) == 1 &&
                  static_cast<int>(hixl::AsyncConnectStatus::CONNECTING) == 2 &&
                  static_cast<int>(hixl::AsyncConnectStatus::CONNECTED) == 3 &&
                  static_cast<int>(hixl::AsyncConnectStatus::CONNECT_FAILED) == 4 &&
                  static_cast<int>(hixl::AsyncConnectStatus::DISCONNECT_PENDING) == 5 &&
                  static_cast<int>(hixl::AsyncConnectStatus::DISCONNECTING) == 6,
              "");
static_assert(sizeof(hixl::MemDesc) == 144 && offsetof(hixl::MemDesc, len) == 8 &&
                  offsetof(hixl::MemDesc, reserved) == 16,
              "");
static_assert(sizeof(hixl::TransferOpDesc) == 24 && offsetof(hixl::TransferOpDesc, len) == 16, "");
static_assert(sizeof(hixl::TransferArgs) == 128 && sizeof(hixl::GetTransferStatusArgs) == 128 &&
                  sizeof(hixl::TransferResult) == 128,
              "");
static_assert(offsetof(hixl::GetTransferStatusArgs, skip_waiting) == 4, "");
static_assert(offsetof(hixl::TransferResult, user_data) == 8 &&
                  offsetof(hixl::TransferResult, status) == 16,
              "");
static_assert(sizeof(hixl::NotifyDesc) == 2 * sizeof(ge::AscendString), "");
static_assert(sizeof(ge::AscendString) == 16, "");

// 1.2 and 1.14
static_assert(sizeof(hixl::Hixl) == 8 && sizeof(adxl::AdxlEngine) == 8, "one pointer");
static_assert(std::is_default_constructible<hixl::Hixl>::value, "");
static_assert(!std::is_copy_constructible<hixl::Hixl>::value, "");
static_assert(!std::is_copy_constructible<adxl::AdxlEngine>::value, "");
static_assert(!std::is_polymorphic<hixl::Hixl>::value, "");
static_assert(adxl::SUCCESS == 0 && adxl::PARAM_INVALID == 103900 && adxl::TIMEOUT == 103901 &&
                  adxl::NOT_CONNECTED == 103902 && adxl::ALREADY_CONNECTED == 103903 &&
                  adxl::NOTIFY_FAILED == 103904 && adxl::UNSUPPORTED == 103905 &&
                  adxl::FAILED == 503900 && adxl::RESOURCE_EXHAUSTED == 203900,
              "");
static_assert(sizeof(adxl::MemDesc) == 144 && sizeof(adxl::TransferOpDesc) == 24 &&
                  sizeof(adxl::TransferArgs) == 128 && sizeof(adxl::ShareableHandle) == 128,
              "");

namespace {

// Each signature, to the letter: an assignment to a pointer of that type.
using hixl::AscendString;
using hixl::Hixl;
using hixl::Status;
Status (Hixl::*g_initialize)(const AscendString&,
                             const std::map<AscendString, AscendString>&) = &Hixl::Initialize;
void (Hixl::*g_finalize)() = &Hixl::Finalize;
Status (Hixl::*g_register)(const hixl::MemDesc&, hixl::MemType,
                           hixl::MemHandle&) = &Hixl::RegisterMem;
Status (Hixl::*g_deregister)(hixl::MemHandle) = &Hixl::DeregisterMem;
using LinkCall = Status (Hixl::*)(const AscendString&, int32_t);
LinkCall g_link_calls[] = {&Hixl::Connect, &Hixl::Disconnect, &Hixl::ConnectAsync,
                           &Hixl::DisconnectAsync};
Status (Hixl::*g_async_status)(const AscendString&,
                               hixl::AsyncConnectStatus&) = &Hixl::GetAsyncConnectStatus;
Status (Hixl::*g_all_async)(std::map<AscendString, hixl::AsyncConnectStatus>&) =
    &Hixl::GetAsyncConnectStatus;
Status (Hixl::*g_sync)(const AscendString&, hixl::TransferOp,
                       const std::vector<hixl::TransferOpDesc>&, int32_t) = &Hixl::TransferSync;
Status (Hixl::*g_async)(const AscendString&, hixl::TransferOp,
                        const std::vector<hixl::TransferOpDesc>&, const hixl::TransferArgs&,
                        hixl::TransferReq&) = &Hixl::TransferAsync;
Status (Hixl::*g_status)(const hixl::TransferReq&,
                         hixl::TransferStatus&) = &Hixl::GetTransferStatus;
Status (Hixl::*g_all_status)(const hixl::GetTransferStatusArgs&,
                             std::vector<hixl::TransferResult>&) = &Hixl::GetTransferStatus;
Status (Hixl::*g_notify)(const AscendString&, const hixl::NotifyDesc&, int32_t) = &Hixl::SendNotify;
Status (Hixl::*g_notifies)(std::vector<hixl::NotifyDesc>&) = &Hixl::GetNotifies;
Status (*g_capability)(hixl::FeatureType, int32_t&) = &Hixl::GetCapability;

bool AllThere() {
  return g_initialize != nullptr && g_finalize != nullptr && g_register != nullptr &&
         g_deregister != nullptr && g_link_calls[3] != nullptr && g_async_status != nullptr &&
         g_all_async != nullptr && g_sync != nullptr && g_async != nullptr && g_status != nullptr &&
         g_all_status != nullptr && g_notify != nullptr && g_notifies != nullptr &&
         g_capability != nullptr;
}

int failures = 0;

void Expect(bool held, const char* what) {
  if (held) return;
  std::printf("not so: %s\n", what);
  ++failures;
}

// Default arguments and the shapes that programs use.
void Shapes() {
  std::vector<hixl::Hixl> several(4);
  Expect(several[3].Connect("127.0.0.1:1") == hixl::FAILED, "timeouts have a default");
  Expect(several[0].TransferSync("127.0.0.1:1", hixl::READ, {}) == hixl::FAILED, "and here");
  hixl::TransferReq request = nullptr;
  hixl::TransferOpDesc desc{1, 2, 3};
  Expect(several[0].TransferAsync("127.0.0.1:1", hixl::WRITE, {desc}, {}, request) == hixl::FAILED,
         "braces make descriptors and arguments");
  hixl::MemDesc memory{};
  memory.addr = 1;
  memory.len = 2;
  Expect(memory.addr + memory.len == 3 && memory.reserved[127] == 0, "a range");
  const hixl::GetTransferStatusArgs query;
  Expect(query.max_query_count == UINT32_MAX && !query.skip_waiting, "defaults of the query");
  const hixl::TransferResult result;
  Expect(result.req == nullptr && result.status == hixl::TransferStatus::WAITING, "and the result");
  Expect(hixl::TransferArgs().user_data == nullptr, "and the arguments");
}

void Keys() {
  Expect(std::strcmp(hixl::OPTION_ENABLE_USE_FABRIC_MEM, "EnableUseFabricMem") == 0, "fabric key");
  Expect(std::strcmp(hixl::OPTION_RDMA_TRAFFIC_CLASS, "RdmaTrafficClass") == 0, "class key");
  Expect(std::strcmp(hixl::OPTION_RDMA_SERVICE_LEVEL, "RdmaServiceLevel") == 0, "level key");
  Expect(std::strcmp(hixl::OPTION_BUFFER_POOL, "BufferPool") == 0, "pool key");
  Expect(std::strcmp(hixl::OPTION_GLOBAL_RESOURCE_CONFIG, "GlobalResourceConfig") == 0,
         "config key");
  Expect(std::strcmp(hixl::OPTION_AUTO_CONNECT, "AutoConnect") == 0, "auto connect key");
  Expect(std::strcmp(hixl::OPTION_LOCAL_COMM_RES, "LocalCommRes") == 0, "resources key");
  Expect(std::strcmp(adxl::OPTION_BUFFER_POOL, "adxl.BufferPool") == 0, "adxl pool key");
  Expect(std::strcmp(adxl::OPTION_AUTO_CONNECT, "AutoConnect") == 0, "adxl auto connect key");
  Expect(std::strcmp(ge::OPTION_EXEC_DEVICE_ID, "ge.exec.deviceId") == 0, "device key");
  Expect(std::strcmp(ge::OPTION_SESSION_DEVICE_ID, "ge.session_device_id") == 0, "session key");
}

void Texts() {
  ge::StatusFactory* factory = ge::StatusFactory::Instance();
  Expect(factory->GetErrDesc(TEST_TEXT) == "a text of the test", "a text is registered");
  Expect(factory->GetErrDesc(12345678).empty(), "an unknown code has none");
  GE_ERRORNO_EXTERNAL(TEST_CODE, std::string("another"));
  Expect(std::string(factory->GetErrDescV2(TEST_CODE).GetString()) == "another",
         "as a string, too");
}

void Capabilities() {
  int32_t value = -1;
  for (const int feature : {0, 1, 2, 77}) {
    Expect(hixl::Hixl::GetCapability(static_cast<hixl::FeatureType>(feature), value) ==
                   hixl::SUCCESS &&
               value == (feature <= 1 ? 1 : 0),
           "features 0 and 1 are there, others are not");
    Expect(adxl::AdxlEngine::GetCapability(static_cast<adxl::FeatureType>(feature), value) ==
                   adxl::SUCCESS &&
               value == (feature <= 1 ? 1 : 0),
           "with adxl as well");
  }
  Expect(
      hixl::Hixl::GetCapability(static_cast<hixl::FeatureType>(-1), value) == hixl::PARAM_INVALID,
      "a negative feature is PARAM_INVALID");
}

}  // namespace

int main() {
  Expect(AllThere(), "every signature is there");
  Shapes();
  Keys();
  Texts();
  Capabilities();
  std::printf("%s\n", failures == 0 ? "every check held" : "some checks failed");
  return failures;
}
