#!/usr/bin/env bash
# Lays out a usable installation in a directory; needs no root.
#
#   deploy/install.sh --prefix DIR
#
# DIR gets bin/ (hixld, hixlctl, hixl-bench), lib/ (libcann_hixl.so, libcann_hixl.a), include/, python/
# (the package hixl with an extension module per CPython found), etc/ and share/. Nothing in it
# names DIR, so it may be moved. Builds first; packages are those of deploy/packages.txt, group build.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

prefix=
while [ $# -gt 0 ]; do
  case $1 in
    --prefix) prefix=${2:?--prefix needs a directory}; shift ;;
    -h | --help) sed -n '2,8s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "unknown option $1 (allowed: --prefix DIR)" >&2; exit 2 ;;
  esac
  shift
done
[ -n "$prefix" ] || { echo "--prefix DIR is required" >&2; exit 2; }

bazel build --config=opt \
  //daemon:hixld //client/hixlctl:hixlctl //client/bench:hixl-bench \
  //client/cpp:libcann_hixl.so //client/cpp:cann_hixl_static //client/cpp:cann_hixl_static_libs \
  //client/python/...
built=$(bazel info --config=opt bazel-bin)

# put MODE TARGET_DIR FILE...: replaces files, so that a running program keeps its old one.
put() {
  local mode=$1 directory=$2 file
  shift 2
  mkdir -p "$directory"
  for file; do
    install -m "$mode" "$file" "$directory/"
  done
}

# Files that an earlier version installed and this one does not know must not be found.
rm -rf "${prefix:?}/include" "$prefix/python"

put 755 "$prefix/bin" "$built/daemon/hixld" "$built/client/hixlctl/hixlctl" \
  "$built/client/bench/hixl-bench"
put 755 "$prefix/lib" "$built/client/cpp/libcann_hixl.so"
put 644 "$prefix/lib" "$built/client/cpp/libcann_hixl.a" "$built/client/cpp/libcann_hixl.a.libs"
(cd client/include && find . -name '*.h') | while read -r header; do
  put 644 "$prefix/include/$(dirname "$header")" "client/include/$header"
done
put 644 "$prefix/etc" config/hixld.yaml
put 644 "$prefix/share/doc/hixld" README.md LICENSE docs/*.md
put 644 "$prefix/share/doc/hixld/design" docs/design/*.md
put 644 "$prefix/python/hixl" client/python/hixl/*.py client/python/hixl/*.pyi client/python/hixl/py.typed
put 755 "$prefix/python/hixl" "$built"/client/python/hixl/*.so
echo "Installed hixld to $prefix"
