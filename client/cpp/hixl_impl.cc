#include "client/cpp/hixl_impl.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cpp/devices.h"
#include "client/cpp/log.h"
#include "client/cpp/options.h"
#include "proto/base/endpoint.h"
#include "proto/base/status.h"
#include "proto/base/text_code.h"

namespace hixl {
namespace {

using hixld::client::DeviceFacts;
using hixld::client::Engine;
using hixld::client::EngineConfig;
using hixld::client::OptionMap;
using hixld::client::OptionsContext;

std::string ToString(const AscendString& text) {
  return std::string(text.GetString(), text.GetLength());
}

OptionMap ToOptionMap(const std::map<AscendString, AscendString>& options) {
  OptionMap plain;
  for (const auto& [key, value] : options) plain[ToString(key)] = ToString(value);
  return plain;
}

// An engine without a device transfers host memory; who has named the device is told.
absl::Status WithoutDevice(const EngineConfig& config, const DeviceFacts& facts, bool named,
                           const OptionsContext& context) {
  const std::string known =
      facts.devices.empty() ? "none: hixld has no devices" : absl::StrJoin(facts.devices, ", ");
  if (config.options.generates_endpoints) {
    return hixld::ParamInvalid(
        absl::StrCat("LocalCommRes 1.3 has no endpoint_list, and device ", config.device_id,
                     ", for which one could be generated, is not there"),
        {.object = absl::StrCat("device ", config.device_id),
         .option = "LocalCommRes",
         .allowed =
             absl::StrCat("net_instance_id and endpoint_list, or one of the devices: ", known)});
  }
  std::vector<std::string> origin;
  if (named) origin.push_back("InitializeExtArgs.device_id");
  for (const char* variable : {"ASCEND_DEVICE_ID", "ASCEND_RT_VISIBLE_DEVICES"}) {
    const std::string value = context.getenv(variable).value_or("");
    if (!value.empty()) origin.push_back(absl::StrCat(variable, "=", value));
  }
  if (origin.empty()) return absl::OkStatus();
  hixld::client::Log(
      hixld::client::LogLevel::kWarning,
      absl::StrCat("engine ", config.local_engine, " is bound to device ", config.device_id, " (",
                   absl::StrJoin(origin, ", "),
                   "), which is not there: it can transfer host memory only; allowed: ", known));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::shared_ptr<Engine>> Hixl::HixlImpl::Live() const {
  if (inherited()) {
    return hixld::Failed(
        absl::StrCat("this engine belongs to process ", owner_, ", from which process ", getpid(),
                     " was forked; make an engine of its own here"),
        {.object = "engine", .text_code = hixld::kInvalidHandle});
  }
  hixld::MutexLock lock(&mutex_);
  if (engine_ != nullptr) return engine_;
  return hixld::Failed("the engine is not initialised",
                       {.object = "engine", .text_code = hixld::kInvalidHandle});
}

absl::Status Hixl::HixlImpl::Initialize(const AscendString& local_engine,
                                        const std::map<AscendString, AscendString>& options,
                                        const InitializeExtArgs& args) {
  hixld::MutexLock initializing(&initialize_mutex_);
  // A value of HIXL_LOG_LEVEL that means nothing is told now.
  hixld::client::LogEnabled(hixld::client::LogLevel::kError);
  OptionsContext context = OptionsContext::System();
  const std::shared_ptr<Engine> running = Current();
  if (running != nullptr) context.soc_name = running->product();
  const OptionMap given = ToOptionMap(options);
  EngineConfig config;
  HIXLD_ASSIGN_OR_RETURN(config.options, ParseOptions(given, context));
  config.local_engine = ToString(local_engine);
  HIXLD_RETURN_IF_ERROR(hixld::ParseEndpoint(config.local_engine).status());
  if (running != nullptr) return absl::OkStatus();
  config.listen_on_any_port = args.listen_on_any_port;
  HIXLD_ASSIGN_OR_RETURN(config.device_id, hixld::client::BoundDevice(
                                               args.device_id, context.getenv("ASCEND_DEVICE_ID"),
                                               context.getenv("ASCEND_RT_VISIBLE_DEVICES")));
  HIXLD_ASSIGN_OR_RETURN(config.daemon, hixld::client::FindDaemon());
  // Held until the engine is open, so that both use one session.
  const auto connection = hixld::client::Connection::Get(config.daemon);
  HIXLD_ASSIGN_OR_RETURN(const DeviceFacts device, Engine::FactsOf(*connection, config.device_id));
  config.product = device.product;
  if (!config.product.empty()) {
    // The product may decide which engine it is, and so what is allowed (contract 3.3).
    context.soc_name = config.product;
    HIXLD_ASSIGN_OR_RETURN(config.options, ParseOptions(given, context));
  }
  if (!device.present) {
    HIXLD_RETURN_IF_ERROR(WithoutDevice(config, device, args.device_id >= 0, context));
  }
  HIXLD_ASSIGN_OR_RETURN(std::shared_ptr<Engine> engine, Engine::Open(std::move(config)));
  hixld::MutexLock lock(&mutex_);
  engine_ = std::move(engine);
  return absl::OkStatus();
}

std::shared_ptr<Engine> Hixl::HixlImpl::Current() const {
  hixld::MutexLock lock(&mutex_);
  return engine_;
}

void Hixl::HixlImpl::Finalize() {
  std::shared_ptr<Engine> engine;
  {
    hixld::MutexLock lock(&mutex_);
    engine.swap(engine_);
  }
}

absl::Status CheckOp(TransferOp operation) {
  if (operation == READ || operation == WRITE) return absl::OkStatus();
  return hixld::ParamInvalid(absl::StrCat("transfer operation ", static_cast<int>(operation)),
                             {.object = "transfer operation", .allowed = "READ (0), WRITE (1)"});
}

absl::Status CheckType(MemType type) {
  if (type == MEM_DEVICE || type == MEM_HOST) return absl::OkStatus();
  return hixld::ParamInvalid(absl::StrCat("memory type ", static_cast<int>(type)),
                             {.object = "memory type", .allowed = "MEM_DEVICE (0), MEM_HOST (1)"});
}

}  // namespace hixl
