#include "client/cpp/json_fields.h"

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "proto/base/status.h"

namespace hixld::client {

using nlohmann::json;

namespace {

// A value for messages. What is nested is not written out: that takes as much stack as it is deep.
std::string Shown(const json& value) {
  for (const json& entry : value) {
    if (entry.is_structured()) return absl::StrCat("a nested ", value.type_name());
  }
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

// Digits with at most a sign before them: nothing that a number parser skips or guesses.
bool IsDecimal(const std::string& text) {
  const size_t first = !text.empty() && text.front() == '-' ? 1 : 0;
  return text.size() > first && text.find_first_not_of("0123456789", first) == std::string::npos;
}

// The same with a fraction and an exponent.
bool IsNumeric(const std::string& text) {
  return !text.empty() && text.find_first_not_of("0123456789.eE+-") == std::string::npos;
}

}  // namespace

absl::StatusOr<json> ParseJsonObject(const std::string& text, const char* option) {
  json value = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!value.is_object()) {
    return ParamInvalid(
        absl::StrCat("option ", option, " is not a JSON object"),
        {.object = absl::StrCat("option ", option), .option = option, .allowed = "a JSON object"});
  }
  return value;
}

const json* JsonFields::Find(const std::string& key) const {
  const auto found = object_.find(key);
  return found == object_.end() ? nullptr : &*found;
}

absl::Status JsonFields::Bad(const std::string& key, const std::string& allowed) const {
  const json* value = Find(key);
  const std::string shown = value == nullptr ? "nothing" : Shown(*value);
  return ParamInvalid(absl::StrCat("option ", option_, ": ", key, " is ", shown.substr(0, 200),
                                   ", allowed is ", allowed),
                      {.object = absl::StrCat("option ", option_, ", field ", key),
                       .option = key,
                       .allowed = allowed});
}

absl::StatusOr<std::optional<int64_t>> JsonFields::Int(const std::string& key, int64_t low,
                                                       int64_t high) const {
  const json* value = Find(key);
  if (value == nullptr) return std::nullopt;
  int64_t number = 0;
  bool valid = false;
  if (value->is_number_unsigned()) {
    const uint64_t wide = value->get<uint64_t>();
    valid = wide <= static_cast<uint64_t>(INT64_MAX);
    number = static_cast<int64_t>(wide);
  } else if (value->is_number_integer()) {
    number = value->get<int64_t>();
    valid = true;
  } else if (value->is_string()) {
    valid = IsDecimal(value->get_ref<const std::string&>()) &&
            absl::SimpleAtoi(value->get_ref<const std::string&>(), &number);
  }
  if (!valid || number < low || number > high) {
    return Bad(key, absl::StrCat("an integer in ", low, "..", high));
  }
  return number;
}

absl::StatusOr<std::optional<bool>> JsonFields::Bool(const std::string& key) const {
  const json* value = Find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_boolean()) return Bad(key, "true or false");
  return value->get<bool>();
}

absl::StatusOr<std::optional<double>> JsonFields::Fraction(const std::string& key) const {
  const json* value = Find(key);
  if (value == nullptr) return std::nullopt;
  double number = 0;
  bool valid = false;
  if (value->is_number()) {
    number = value->get<double>();
    valid = true;
  } else if (value->is_string()) {
    valid = IsNumeric(value->get_ref<const std::string&>()) &&
            absl::SimpleAtod(value->get_ref<const std::string&>(), &number);
  }
  if (!valid || !(number > 0.0 && number < 1.0)) return Bad(key, "a number between 0 and 1");
  return number;
}

absl::StatusOr<std::optional<std::string>> JsonFields::String(const std::string& key) const {
  const json* value = Find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) return Bad(key, "a string");
  return value->get<std::string>();
}

absl::StatusOr<std::optional<std::vector<std::string>>> JsonFields::Strings(
    const std::string& key) const {
  const json* value = Find(key);
  if (value == nullptr) return std::nullopt;
  std::vector<std::string> strings;
  if (value->is_string()) {
    strings.push_back(value->get<std::string>());
  } else if (value->is_array()) {
    for (const json& entry : *value) {
      if (!entry.is_string()) return Bad(key, "a string or an array of strings");
      strings.push_back(entry.get<std::string>());
    }
  } else {
    return Bad(key, "a string or an array of strings");
  }
  return strings;
}

}  // namespace hixld::client
