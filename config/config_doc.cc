// Prints docs/config.md, or with --yaml config/hixld.yaml, from the schema.
#include <cstdio>
#include <cstring>

#include "config/render.h"

int main(int argc, char** argv) {
  if (argc == 1) {
    std::fputs(hixld::RenderConfigPage().c_str(), stdout);
    return 0;
  }
  if (argc == 2 && std::strcmp(argv[1], "--yaml") == 0) {
    std::fputs(hixld::RenderConfigYaml().c_str(), stdout);
    return 0;
  }
  std::fputs("usage: config_doc [--yaml]\n", stderr);
  return 2;
}
