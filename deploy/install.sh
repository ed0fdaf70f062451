#!/usr/bin/env bash
# Lays out a usable installation in a directory; needs no root.
#
#   deploy/install.sh --prefix DIR
#
# DIR gets bin/ (hixld, hixlctl, hixl-bench), lib/ (libcann_hixl.so, libcann_hixl.a, libllm_datadist.so,
# files for pkg-config and CMake), include/, python/ (the package hixl with an extension module per
# CPython found), etc/ and share/. Nothing in it names DIR, so it may be moved. Builds first; packages
# are those of deploy/packages.txt, group build.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

prefix=
while [ $# -gt 0 ]; do
  case $1 in
    --prefix) prefix=${2:?--prefix needs a directory}; shift ;;
    -h | --help) sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "unknown option $1 (allowed: --prefix DIR)" >&2; exit 2 ;;
  esac
  shift
done
[ -n "$prefix" ] || { echo "--prefix DIR is required" >&2; exit 2; }

bazel build --config=opt \
  //daemon:hixld //client/hixlctl:hixlctl //client/bench:hixl-bench \
  //client/cpp:libcann_hixl.so //client/cpp:cann_hixl_static //client/cpp:cann_hixl_static_libs \
  //client/cpp:libllm_datadist.so \
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
rm -rf "${prefix:?}/include" "$prefix/python" "$prefix/lib/cmake" "$prefix/lib/pkgconfig"

put 755 "$prefix/bin" "$built/daemon/hixld" "$built/client/hixlctl/hixlctl" \
  "$built/client/bench/hixl-bench"
put 755 "$prefix/lib" "$built/client/cpp/libcann_hixl.so" "$built/client/cpp/libllm_datadist.so"
put 644 "$prefix/lib" "$built/client/cpp/libcann_hixl.a" "$built/client/cpp/libcann_hixl.a.libs"
(cd client/include && find . -name '*.h') | while read -r header; do
  put 644 "$prefix/include/$(dirname "$header")" "client/include/$header"
done
# fill TEMPLATE TARGET: puts the release and the static library's options into a file of deploy/sdk.
fill() {
  local version static_libs
  version=$(sed -n 's/.*kVersion\[\] = "\(.*\)".*/\1/p' proto/base/version.h)
  static_libs=$(tr '\n' ' ' < "$built/client/cpp/libcann_hixl.a.libs")
  mkdir -p "$(dirname "$2")"
  sed -e "s|@VERSION@|${version:?}|g" -e "s|@STATIC_LIBS@|$static_libs|g" "deploy/sdk/$1" > "$2"
  chmod 644 "$2"
}

for library in cann_hixl llm_datadist; do
  fill "$library.pc.in" "$prefix/lib/pkgconfig/$library.pc"
  fill "${library}Config.cmake" "$prefix/lib/cmake/$library/${library}Config.cmake"
  fill ConfigVersion.cmake.in "$prefix/lib/cmake/$library/${library}ConfigVersion.cmake"
done
put 644 "$prefix/etc" config/hixld.yaml
put 644 "$prefix/share/doc/hixld" README.md LICENSE docs/*.md
put 644 "$prefix/share/doc/hixld/design" docs/design/*.md
put 644 "$prefix/python/hixl" client/python/hixl/*.py client/python/hixl/*.pyi client/python/hixl/py.typed
put 755 "$prefix/python/hixl" "$built"/client/python/hixl/*.so
echo "Installed hixld to $prefix"
