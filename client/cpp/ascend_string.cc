#include "external/ge_common/ascend_string.h"

#include <cstring>

namespace ge {
namespace {

// -1, 0 or 1; null sorts before everything.
int Compare(const std::shared_ptr<std::string>& left, const std::shared_ptr<std::string>& right) {
  if (left == right) return 0;
  if (left == nullptr) return -1;
  if (right == nullptr) return 1;
  const int order = left->compare(*right);
  return order < 0 ? -1 : (order > 0 ? 1 : 0);
}

}  // namespace

AscendString::AscendString(const char_t* name) {
  if (name != nullptr) name_ = std::make_shared<std::string>(name);
}

AscendString::AscendString(const char_t* name, size_t length) {
  if (name != nullptr) name_ = std::make_shared<std::string>(name, length);
}

const char_t* AscendString::GetString() const { return name_ == nullptr ? "" : name_->c_str(); }

size_t AscendString::GetLength() const { return name_ == nullptr ? 0 : name_->size(); }

size_t AscendString::Find(const AscendString& name) const {
  if (name_ == nullptr || name.name_ == nullptr) return std::string::npos;
  return name_->find(*name.name_);
}

size_t AscendString::Hash() const {
  return std::hash<std::string>()(name_ == nullptr ? std::string() : *name_);
}

bool AscendString::operator<(const AscendString& other) const {
  return Compare(name_, other.name_) < 0;
}
bool AscendString::operator>(const AscendString& other) const {
  return Compare(name_, other.name_) > 0;
}
bool AscendString::operator<=(const AscendString& other) const {
  return Compare(name_, other.name_) <= 0;
}
bool AscendString::operator>=(const AscendString& other) const {
  return Compare(name_, other.name_) >= 0;
}
bool AscendString::operator==(const AscendString& other) const {
  return Compare(name_, other.name_) == 0;
}
bool AscendString::operator!=(const AscendString& other) const {
  return Compare(name_, other.name_) != 0;
}

bool AscendString::operator==(const char_t* other) const {
  if (name_ == nullptr || other == nullptr) return name_ == nullptr && other == nullptr;
  return *name_ == other;
}
bool AscendString::operator!=(const char_t* other) const { return !(*this == other); }

}  // namespace ge
