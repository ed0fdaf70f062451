#include "config/render.h"

#include <catch2/catch.hpp>
#include <fstream>
#include <sstream>

#include "config/loader.h"
#include "config/schema.h"

namespace hixld {
namespace {

std::string Contents(const std::string& path) {
  std::ifstream file(path);
  REQUIRE(file.good());
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST_CASE("hixld.yaml is what the schema says") {
  CHECK(Contents("config/hixld.yaml") == RenderConfigYaml());
}

TEST_CASE("docs/config.md is what the schema says") {
  CHECK(Contents("docs/config.md") == RenderConfigPage());
}

TEST_CASE("hixld.yaml sets every key, to its default") {
  const auto config = LoadConfig("config/hixld.yaml");
  INFO(config.status());
  REQUIRE(config.ok());
  CHECK(CheckConfig(*config).ok());
  const Config defaults;
  for (const ConfigKey& key : ConfigKeys()) {
    INFO(key.key);
    CHECK(key.get(*config) == key.get(defaults));
    CHECK(WhereSet(*config, key.key) != "default");
  }
}

TEST_CASE("every key has a section, a meaning and allowed values") {
  for (const ConfigKey& key : ConfigKeys()) {
    INFO(key.key);
    CHECK(FindConfigKey(key.key) == &key);
    CHECK_FALSE(key.doc.empty());
    CHECK_FALSE(key.allowed.empty());
    const size_t dot = key.key.rfind('.');
    CHECK((dot == std::string::npos || IsConfigSection(key.key.substr(0, dot))));
  }
}

}  // namespace
}  // namespace hixld
