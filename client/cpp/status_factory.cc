#include <map>

#include "external/ge_common/api_error_codes.h"
#include "proto/base/mutex.h"

namespace ge {
namespace {

struct Descriptions {
  hixld::Mutex mutex;
  std::map<uint32_t, AscendString> texts ABSL_GUARDED_BY(mutex);
};

// Never destroyed: codes are registered by constructors of other translation units and looked up
// while the process exits.
Descriptions& AllDescriptions() {
  static auto* descriptions = [] {
    auto* created = new Descriptions;
    hixld::MutexLock lock(&created->mutex);
    created->texts = {{SUCCESS, "success"},
                      {FAILED, "failed"},
                      {PARAM_INVALID, "a parameter is invalid"},
                      {END_OF_SEQUENCE, "end of sequence"}};
    return created;
  }();
  return *descriptions;
}

}  // namespace

StatusFactory* StatusFactory::Instance() {
  static auto* instance = new StatusFactory;
  return instance;
}

void StatusFactory::RegisterErrorNo(const uint32_t error_code, const char_t* const description) {
  if (description == nullptr) return;
  Descriptions& all = AllDescriptions();
  hixld::MutexLock lock(&all.mutex);
  all.texts.emplace(error_code, description);
}

AscendString StatusFactory::GetErrDescV2(const uint32_t error_code) {
  Descriptions& all = AllDescriptions();
  hixld::MutexLock lock(&all.mutex);
  const auto found = all.texts.find(error_code);
  return found == all.texts.end() ? AscendString("") : found->second;
}

}  // namespace ge
