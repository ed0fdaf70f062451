// Reading one field of a JSON object with a check that names the field and the allowed values.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace hixld::client {

// Parses `text` as a JSON object; PARAM_INVALID names `option`.
absl::StatusOr<nlohmann::json> ParseJsonObject(const std::string& text, const char* option);

// The fields of one JSON object that is the value of option `option_`. Absent fields give
// nullopt; a wrong type or value is PARAM_INVALID.
class JsonFields {
 public:
  JsonFields(const nlohmann::json& object, std::string option)
      : object_(object), option_(std::move(option)) {}

  // A JSON integer or a numeric string, within [low, high].
  absl::StatusOr<std::optional<int64_t>> Int(const std::string& key, int64_t low,
                                             int64_t high) const;
  // true or false only.
  absl::StatusOr<std::optional<bool>> Bool(const std::string& key) const;
  // A number or a numeric string strictly between 0 and 1.
  absl::StatusOr<std::optional<double>> Fraction(const std::string& key) const;
  absl::StatusOr<std::optional<std::string>> String(const std::string& key) const;
  // A string or an array of strings.
  absl::StatusOr<std::optional<std::vector<std::string>>> Strings(const std::string& key) const;

  absl::Status Bad(const std::string& key, const std::string& allowed) const;

 private:
  const nlohmann::json* Find(const std::string& key) const;

  const nlohmann::json& object_;
  const std::string option_;
};

}  // namespace hixld::client
