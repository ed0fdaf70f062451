// Result codes of namespace ge, the table of their descriptions, and the types around them.
#ifndef HIXLD_EXTERNAL_GE_COMMON_API_ERROR_CODES_H_
#define HIXLD_EXTERNAL_GE_COMMON_API_ERROR_CODES_H_

// A CANN toolkit's own codes, when they were included first, are used as they are.
#ifndef INC_EXTERNAL_GE_GE_API_ERROR_CODES_H_
#define INC_EXTERNAL_GE_GE_API_ERROR_CODES_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "external/ge_common/ascend_string.h"
#include "external/ge_common/data_type.h"

namespace ge {

using Status = uint32_t;

// Process-wide texts of result codes. Thread-safe.
class ASCEND_FUNC_VISIBILITY StatusFactory {
 public:
  static StatusFactory* Instance();

  // The first text of a code stays; null is ignored.
  void RegisterErrorNo(const uint32_t error_code, const char_t* const description);
  void RegisterErrorNo(const uint32_t error_code, const std::string& description) {
    RegisterErrorNo(error_code, description.c_str());
  }

  // "" for an unknown code.
  std::string GetErrDesc(const uint32_t error_code) {
    return std::string(GetErrDescV2(error_code).GetString());
  }
  AscendString GetErrDescV2(const uint32_t error_code);

  StatusFactory(const StatusFactory&) = delete;
  StatusFactory& operator=(const StatusFactory&) = delete;

 private:
  StatusFactory() = default;
  ~StatusFactory() = default;
};

// Registers a text where it is constructed.
class ASCEND_FUNC_VISIBILITY ErrorNoRegisterar {
 public:
  ErrorNoRegisterar(const uint32_t error_code, const char_t* const description) {
    StatusFactory::Instance()->RegisterErrorNo(error_code, description);
  }
  ErrorNoRegisterar(const uint32_t error_code, const std::string& description) {
    StatusFactory::Instance()->RegisterErrorNo(error_code, description.c_str());
  }
};

// Defines `constexpr ge::Status name` from its fields; `value` has 12 bits.
#define GE_ERRORNO_DEFINE(runtime, type, level, sysid, modid, name, value)             \
  constexpr ge::Status name =                                                          \
      (static_cast<uint32_t>(runtime) << 30U) | (static_cast<uint32_t>(type) << 28U) | \
      (static_cast<uint32_t>(level) << 25U) | (static_cast<uint32_t>(sysid) << 17U) |  \
      (static_cast<uint32_t>(modid) << 12U) | (static_cast<uint32_t>(value) & 0xFFFU)

// The same, and registers a text.
#define GE_ERRORNO(runtime, type, level, sysid, modid, name, value, desc) \
  GE_ERRORNO_DEFINE(runtime, type, level, sysid, modid, name, value);     \
  const ge::ErrorNoRegisterar g_##name##_errorno((name), (desc))

// Registers a text for a code that is defined already.
#define GE_ERRORNO_EXTERNAL(name, desc) \
  const ge::ErrorNoRegisterar g_##name##_errorno((name), (desc))

GE_ERRORNO_DEFINE(0, 0, 0, 0, 0, SUCCESS, 0);
GE_ERRORNO_DEFINE(3, 3, 7, 0xFF, 0x1F, FAILED, 0xFFF);
GE_ERRORNO_DEFINE(1, 1, 0, 8, 0, PARAM_INVALID, 1);
GE_ERRORNO_DEFINE(1, 1, 0, 8, 0, END_OF_SEQUENCE, 7);

constexpr const char_t* OPTION_EXEC_DEVICE_ID = "ge.exec.deviceId";
constexpr const char_t* OPTION_SESSION_DEVICE_ID = "ge.session_device_id";

}  // namespace ge

#endif  // INC_EXTERNAL_GE_GE_API_ERROR_CODES_H_
#endif  // HIXLD_EXTERNAL_GE_COMMON_API_ERROR_CODES_H_
