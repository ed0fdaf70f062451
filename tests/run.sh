#!/usr/bin/env bash
# Installs what the tests need, runs all of them, ends with "N passed, N failed, N skipped".
#
#   tests/run.sh                 all tests, those rooms that share memory and threads also under the
#                                sanitizers and for aarch64
#   tests/run.sh --quick         without sanitizers and aarch64
#   tests/run.sh --full          the sanitizers on every unit test and under the processes, clang too, and all
#                                tests of engines over RDMA; takes hours
#   tests/run.sh --only PATTERN  only tests whose name contains PATTERN
#   tests/run.sh --keep-reports DIR   leave the JUnit reports there
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD
# shellcheck source=deploy/lib/packages.sh
. deploy/lib/packages.sh

quick=false
full=false
only=
reports=
while [ $# -gt 0 ]; do
  case $1 in
    --quick) quick=true ;;
    --full) full=true ;;
    --only) only=${2:?--only needs a pattern}; shift ;;
    --keep-reports) reports=${2:?--keep-reports needs a directory}; shift ;;
    -h | --help) sed -n '2,10s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "unknown option $1 (allowed: --quick, --full, --only PATTERN, --keep-reports DIR)" >&2; exit 2 ;;
  esac
  shift
done

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
reports=${reports:-$scratch/reports}
mkdir -p "$reports"
prefix=$scratch/prefix

section() { printf '\n=== %s (after %ds)\n' "$*" "$SECONDS"; }

# step NAME COMMAND...: one check whose result counts as one test case; 77 is skipped.
step() {
  local name=$1 body=
  shift
  "$@"
  case $? in
    0) ;;
    77) body='<skipped/>'; echo "skipped: $name" ;;
    *) body='<failure/>'; echo "FAILED: $name" ;;
  esac
  printf '<testsuite><testcase classname="run" name="%s">%s</testcase></testsuite>\n' \
    "$name" "$body" >"$reports/step-${name//[^a-z0-9]/-}.xml"
  [ -z "$body" ]
}

clang_format_clean() {
  git ls-files '*.cc' '*.h' | xargs -r clang-format --dry-run -Werror
}

# Where several threads or processes share memory.
threaded_rooms='tests(//tests/proto/ring/... + //tests/proto/fdchannel/... + //tests/proto/direct/...
  + //tests/transports/... + //tests/daemon/memory/... + //tests/daemon/session/... + //tests/daemon/ring/...)'
# There, and where hostile input is read.
sanitized_rooms="$threaded_rooms + tests(//tests/proto/... + //tests/daemon/device/...)"

# unit_tests CONFIG QUERY [BAZEL_OPTION...]: Bazel's tests in one configuration, reports collected.
unit_tests() {
  local config=$1 query=$2 target path
  shift 2
  local targets
  mapfile -t targets < <(bazel query "$query" 2>/dev/null | grep -F -- "$only")
  [ ${#targets[@]} -gt 0 ] || return 0
  bazel test --config="$config" --keep_going "$@" -- "${targets[@]}"
  local status=$?
  local logs
  logs=$(bazel info --config="$config" bazel-testlogs)
  for target in "${targets[@]}"; do
    path=${target#//}
    path=${path/://}
    # A binary that was not built has no report: its name alone counts as a failure.
    cp "$logs/$path/test.xml" "$reports/unit-$config-${path//\//-}.xml" 2>/dev/null ||
      echo "not run: $target" >"$reports/unit-$config-${path//\//-}.xml"
    chmod u+w "$reports/unit-$config-${path//\//-}.xml"
  done
  return $status
}

# python_tests NAME PATH... [-- PYTEST_OPTION...]: pytest against the installation in $prefix.
python_tests() {
  local name=$1
  shift
  HIXLD_TEST_PREFIX=$prefix PYTHONDONTWRITEBYTECODE=1 /usr/bin/python3 -m pytest -c tests/pytest.ini \
    --rootdir=tests --junit-xml="$reports/python-$name.xml" ${only:+-k "$only"} "$@"
  local status=$?
  # 5: nothing was selected, which is no failure when a pattern was given.
  [ $status -eq 0 ] || { [ $status -eq 5 ] && [ -n "$only" ]; }
}

# sanitizer_daemon CONFIG: builds hixld with a sanitizer into a directory and prints its name.
sanitizer_daemon() {
  local config=$1 bin=$scratch/bin-$1
  mkdir -p "$bin"
  bazel build --config="$config" //daemon:hixld >&2 || return 1
  cp "$(bazel info --config="$config" bazel-bin)/daemon/hixld" "$bin/hixld.$config"
  # The thread sanitizer needs its shadow memory free: no address randomisation.
  printf '#!/bin/sh\nexec setarch -R %s "$@"\n' "$bin/hixld.$config" >"$bin/hixld"
  chmod +x "$bin/hixld"
  echo "$bin"
}

# sanitizer_run CONFIG ROOMS
sanitizer_run() {
  local config=$1 rooms=$2 bin
  section "unit tests, $config"
  if ! $full; then
    unit_tests "$config" "$rooms" --test_env=TSAN_OPTIONS="$TSAN_OPTIONS"
    return
  fi
  unit_tests "$config" 'tests(//...)' --test_env=TSAN_OPTIONS="$TSAN_OPTIONS"
  section "processes, $config daemon"
  if bin=$(sanitizer_daemon "$config"); then
    HIXLD_TEST_BIN_DIR=$bin python_tests "$config" tests/integration tests/fault -m 'not slow'
  else
    step "build of the $config daemon" false
  fi
}

ensure_packages deploy/packages.txt build test demo || exit 1
if $full; then export HIXLD_TEST_FULL=1; fi
export ASAN_OPTIONS=detect_leaks=1:abort_on_error=1
export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
export TSAN_OPTIONS=suppressions=$root/tests/tsan.supp:second_deadlock_stack=1

if [ -z "$only" ]; then
  section "format"
  step "clang-format" clang_format_clean
fi
section "unit tests"
unit_tests opt 'tests(//...)'
section "installation"
step "install" deploy/install.sh --prefix "$prefix" &&
  { section "processes"; python_tests opt tests; }
if $full && [ -z "$only" ]; then
  section "clang, thread-safety analysis"
  step "clang build" bazel build --config=clang //daemon/... //transports/... //client/...
fi
if ! $quick && [ -z "$only" ]; then
  section "aarch64, under qemu"
  step "aarch64" tests/aarch64.sh
fi
if ! $quick; then
  sanitizer_run asan "$sanitized_rooms"
  sanitizer_run tsan "$threaded_rooms"
fi

section "summary"
/usr/bin/python3 tests/tools/summarize.py "$reports"/*.xml
