#!/bin/sh
# Writes config/hixld.yaml and docs/config.md anew from the schema: bazel run //config:update
set -eu
tool="$PWD/config/config_doc"
cd "$BUILD_WORKSPACE_DIRECTORY"
"$tool" --yaml > config/hixld.yaml
"$tool" > docs/config.md
