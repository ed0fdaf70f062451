// The default configuration file and the documentation page, made from the schema.
#pragma once

#include <string>

namespace hixld {

// config/hixld.yaml: every key with its default and a comment.
std::string RenderConfigYaml();
// docs/config.md.
std::string RenderConfigPage();

}  // namespace hixld
