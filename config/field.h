// Makers of schema entries, one per type of value. Used by schema.cc only.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "config/schema.h"
#include "config/value.h"

namespace hixld::config_internal {

// A check of text values: nullopt when the value is good, else what is wrong with it.
using TextCheck = std::optional<std::string> (*)(const std::string&);

inline absl::Status Bad(const std::string& what) { return absl::InvalidArgumentError(what); }
inline absl::Status WrongType(const RawValue& raw, const char* expected) {
  return Bad(raw.is_list ? absl::StrCat("is a list, not ", expected)
                         : absl::StrCat("\"", raw.text, "\" is not ", expected));
}
std::string QuoteYaml(const std::string& text);

// A number of any unit: `parse` and `format` know its text form.
template <typename Get, typename Value, typename Parse, typename Format>
ConfigKey Ranged(const char* key, Get get, Value low, Value high, const char* type,
                 const char* expected, Parse parse, Format format, std::string doc) {
  return {
      .key = key,
      .type = type,
      .allowed = absl::StrCat(format(low), "..", format(high)),
      .doc = std::move(doc),
      .set =
          [get, low, high, expected, parse](Config& config, const RawValue& raw) {
            const auto value = raw.is_list ? std::nullopt : parse(raw.text);
            if (!value) return WrongType(raw, expected);
            if (*value < low || *value > high) {
              return Bad(absl::StrCat("\"", raw.text, "\" is out of range"));
            }
            get(config) = *value;
            return absl::OkStatus();
          },
      .get = [get,
              format](const Config& config) { return format(get(const_cast<Config&>(config))); },
  };
}

template <typename Get>
ConfigKey Count(const char* key, Get get, uint64_t low, uint64_t high, std::string doc) {
  return Ranged(
      key, get, low, high, "integer", "a whole number", ParseCount,
      [](uint64_t value) { return absl::StrCat(value); }, std::move(doc));
}

// A Count of which only some values are good: "power of two".
inline ConfigKey Only(ConfigKey key, const std::string& what, bool (*good)(uint64_t)) {
  key.allowed += absl::StrCat(", a ", what);
  key.set = [set = key.set, what, good](Config& config, const RawValue& raw) {
    const std::optional<uint64_t> value = raw.is_list ? std::nullopt : ParseCount(raw.text);
    if (value && !good(*value)) return Bad(absl::StrCat("\"", raw.text, "\" is no ", what));
    return set(config, raw);
  };
  return key;
}

template <typename Get>
ConfigKey PowerOfTwo(const char* key, Get get, uint64_t low, uint64_t high, std::string doc) {
  return Only(Count(key, get, low, high, std::move(doc)), "power of two",
              [](uint64_t value) { return (value & (value - 1)) == 0; });
}

template <typename Get>
ConfigKey MultipleOf4(const char* key, Get get, uint64_t low, uint64_t high, std::string doc) {
  return Only(Count(key, get, low, high, std::move(doc)), "multiple of 4",
              [](uint64_t value) { return value % 4 == 0; });
}

template <typename Get>
ConfigKey Size(const char* key, Get get, uint64_t low, uint64_t high, std::string doc) {
  return Ranged(key, get, low, high, "size", "a size such as 64MiB", ParseSize, FormatSize,
                std::move(doc));
}

template <typename Get>
ConfigKey Duration(const char* key, Get get, std::chrono::nanoseconds low,
                   std::chrono::nanoseconds high, std::string doc) {
  return Ranged(key, get, low, high, "duration", "a duration such as 500ms or 5s", ParseDuration,
                FormatDuration, std::move(doc));
}

template <typename Get>
ConfigKey Mode(const char* key, Get get, uint32_t low, uint32_t high, std::string doc) {
  return Ranged(key, get, low, high, "mode", "an octal mode such as 0660", ParseMode, FormatMode,
                std::move(doc));
}

template <typename Get>
ConfigKey Flag(const char* key, Get get, std::string doc) {
  return {
      .key = key,
      .type = "boolean",
      .allowed = "true | false",
      .doc = std::move(doc),
      .set =
          [get](Config& config, const RawValue& raw) {
            if (raw.is_list || (raw.text != "true" && raw.text != "false")) {
              return WrongType(raw, "a boolean");
            }
            get(config) = raw.text == "true";
            return absl::OkStatus();
          },
      .get = [get](const Config& config) -> std::string {
        return get(const_cast<Config&>(config)) ? "true" : "false";
      },
  };
}

// One of several words, kept as an enumerator.
template <typename Get, typename Enum>
ConfigKey Choice(const char* key, Get get, std::vector<std::pair<std::string, Enum>> words,
                 std::string doc) {
  const std::string allowed =
      absl::StrJoin(words, " | ", [](std::string* out, const auto& word) { *out += word.first; });
  return {
      .key = key,
      .type = "choice",
      .allowed = allowed,
      .doc = std::move(doc),
      .set =
          [get, words](Config& config, const RawValue& raw) {
            for (const auto& [word, value] : words) {
              if (raw.is_list || raw.text != word) continue;
              get(config) = value;
              return absl::OkStatus();
            }
            return WrongType(raw, "one of the allowed words");
          },
      .get = [get, words](const Config& config) -> std::string {
        for (const auto& [word, value] : words) {
          if (get(const_cast<Config&>(config)) != value) continue;
          // YAML 1.1 readers take a bare off for a boolean.
          return word == "off" ? "\"off\"" : word;
        }
        return "";
      },
  };
}

template <typename Get>
ConfigKey Text(const char* key, Get get, const char* allowed, TextCheck check, std::string doc) {
  return {
      .key = key,
      .type = "text",
      .allowed = allowed,
      .doc = std::move(doc),
      .set =
          [get, check](Config& config, const RawValue& raw) {
            if (raw.is_list) return WrongType(raw, "text");
            if (auto wrong = check(raw.text))
              return Bad(absl::StrCat("\"", raw.text, "\" ", *wrong));
            get(config) = raw.text;
            return absl::OkStatus();
          },
      .get = [get](const Config& config) { return QuoteYaml(get(const_cast<Config&>(config))); },
  };
}

// A list of distinct texts, at most `max_items` of them.
template <typename Get>
ConfigKey TextList(const char* key, Get get, const char* allowed, size_t min_items,
                   size_t max_items, TextCheck check, std::string doc) {
  return {
      .key = key,
      .type = "list",
      .allowed = allowed,
      .doc = std::move(doc),
      .set =
          [get, min_items, max_items, check](Config& config, const RawValue& raw) {
            if (!raw.is_list) return WrongType(raw, "a list such as [a, b]");
            if (raw.items.size() < min_items || raw.items.size() > max_items) {
              return Bad(absl::StrCat("has ", raw.items.size(), " entries, not ", min_items, "..",
                                      max_items));
            }
            for (auto item = raw.items.begin(); item != raw.items.end(); ++item) {
              if (auto wrong = check(*item)) return Bad(absl::StrCat("\"", *item, "\" ", *wrong));
              if (std::find(raw.items.begin(), item, *item) != item) {
                return Bad(absl::StrCat("\"", *item, "\" is listed twice"));
              }
            }
            get(config) = raw.items;
            return absl::OkStatus();
          },
      .get =
          [get](const Config& config) {
            const auto& items = get(const_cast<Config&>(config));
            return absl::StrCat("[", absl::StrJoin(items, ", "), "]");
          },
  };
}

}  // namespace hixld::config_internal
