#!/usr/bin/env bash
# Measures every row of the tables in docs/performance.md and writes them as Markdown.
#
#   tests/bench/run_tables.sh                 all rows, to standard output
#   tests/bench/run_tables.sh --output FILE   the same into a file
#   tests/bench/run_tables.sh --only PATTERN  rows whose name contains PATTERN
#   tests/bench/run_tables.sh --quick         shorter rounds: to see that it works, not to publish
#
# Rows between two nodes need root (network namespaces, which are removed again) and iperf3.
# HIXLD_TEST_PREFIX names an installation made by deploy/install.sh; else one is built.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
export PYTHONDONTWRITEBYTECODE=1
exec /usr/bin/python3 tests/bench/tables.py "$@"
