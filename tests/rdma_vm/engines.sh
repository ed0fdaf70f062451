#!/bin/bash
# Runs in the test machine: tests of engines on two nodes, which are written for any transport, with
# daemons that have nothing but RDMA. engines.sh PREFIX TESTS FILE...
# Plain memory is left out: no card reaches it, and there is no TCP to fall back on.
prefix=$1
tests=$2
shift 2
export HIXLD_TEST_PREFIX=$prefix PYTHONDONTWRITEBYTECODE=1
# Processors that are emulated, and shared, acknowledge late: 2 s.
export HIXLD_TEST_SETTINGS='{"node": {"transports": ["rdma"]},
  "rdma": {"ack_timeout": 19, "lanes": 2, "message_bytes": "256KiB"}}'
cd "$tests" || exit
exec /usr/bin/python3 -m pytest -p no:cacheprovider -c pytest.ini --rootdir=. -v \
  -k 'two and nodes and not plain' "$@" 2>&1
