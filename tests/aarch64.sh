#!/usr/bin/env bash
# Builds the unit tests whose code depends on the processor for aarch64 and runs them under qemu:
# rings, loops and workers, memory, transports, the fd channel. Ascend hosts are mostly aarch64.
#
#   tests/aarch64.sh [BAZEL_OPTION...]    prints the tests it takes with --list
#
# Ends with 77 where the packages cannot be had.
#
# Adds Debian's architecture arm64 to this machine for the libraries. Left out by name is what
# cannot be linked for arm64 beside the amd64 packages or needs a kernel of its own:
#   gRPC (its arm64 packages push yaml-cpp for amd64 out): daemon/rpc, daemon/engine, client
#   the sanitizers: qemu has no shadow memory for them
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=deploy/lib/packages.sh
. deploy/lib/packages.sh

ROOMS='tests(//tests/proto/ring/... + //tests/proto/fdchannel/... + //tests/proto/wire/...
  + //tests/transports/... + //tests/daemon/memory/... + //tests/daemon/ring/...)'
# process_vm_readv is not known to qemu.
LEFT_OUT=process_memory_test
PACKAGES=(g++-aarch64-linux-gnu qemu-user-static libabsl-dev:arm64 libprotobuf-dev:arm64
  libssl-dev:arm64)

mapfile -t targets < <(bazel query "$ROOMS" 2>/dev/null | grep -vE "$LEFT_OUT")
if [ "${1:-}" = --list ]; then printf '%s\n' "${targets[@]}"; exit; fi

# installed: whether every package is there; dpkg names a foreign one with its architecture.
installed() {
  local name
  for name in "${PACKAGES[@]}"; do
    dpkg-query -W -f='${db:Status-Abbrev}' "$name" 2>/dev/null | grep -q '^ii' || return 1
  done
}
if ! installed; then
  echo "Installing packages: ${PACKAGES[*]}"
  as_root dpkg --add-architecture arm64 || exit 77
  apt=(env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=600)
  # --no-remove: a package of this machine is never given up for one of another.
  as_root "${apt[@]}" update >/dev/null &&
    as_root "${apt[@]}" install --no-install-recommends --no-remove "${PACKAGES[@]}" >/dev/null ||
    exit 77
fi

# Bazel looks for the linker beside the compiler, where it would find this machine's.
tools=$HOME/.cache/hixld-aarch64
mkdir -p "$tools"
for tool in ld ld.bfd ld.gold ar nm objcopy objdump strip gcov dwp cpp; do
  ln -sf "/usr/bin/aarch64-linux-gnu-$tool" "$tools/$tool"
done
printf '#!/bin/sh\nexec aarch64-linux-gnu-gcc "$@"\n' >"$tools/gcc"
chmod +x "$tools/gcc"
exec bazel test --config=aarch64 --repo_env=CC="$tools/gcc" --keep_going "$@" -- "${targets[@]}"
