#!/bin/bash
# Runs in the test machine: the RDMA transport on its devices, one "== NAME CODE SECONDS" line per
# part. suite.sh EXERCISE
exercise=$1

part() {
  local name=$1 begin=$SECONDS
  shift
  echo "-- $name"
  timeout 100 "$@" 2>&1
  echo "== $name $? $((SECONDS - begin))"
}

# perftest OPERATION SIZE ITERATIONS DEPTH: its average MB/s (2^20) between rxe0 and rxe1.
perftest() {
  local common=(-s "$2" -n "$3" -t "$4" -F -m 1024)
  "ib_$1_bw" -d rxe1 "${common[@]}" >/dev/null 2>&1 &
  local server=$!
  until [ -n "$(ss -Hltn 'sport = 18515')" ]; do sleep 0.1; done
  "ib_$1_bw" -d rxe0 "${common[@]}" 10.77.0.2 | awk -v size="$2" '$1 == size { print $4 }'
  wait $server
}

# The same work by both, one after the other.
speed() {
  local size=$1 iterations=$2 depth=$3 operation
  for operation in write read; do
    echo "perftest $operation $size depth $depth MiB/s $(perftest $operation "$size" "$iterations" "$depth")"
    echo "hixld $operation $size depth $depth $("$exercise" speed rxe0 rxe1 "$size" ${operation^^} 4 "$depth" 2>/dev/null)"
  done
}

without_memlock() {
  local out
  out=$(setpriv --bounding-set -ipc_lock --inh-caps -ipc_lock bash -c \
    "ulimit -l 64; '$exercise' check rxe0 rxe1" 2>&1)
  echo "$out"
  grep -q 'RLIMIT_MEMLOCK is 65536 bytes' <<<"$out"
}

refused() {
  local out
  out=$("$exercise" refuse "$1" 2>&1) || return 1
  echo "$out"
  grep -q "$2" <<<"$out"
}

inactive_port() {
  ip link set v3 down
  ip link set v2 down
  refused rxe2 'rxe2 port 1 is DOWN, not ACTIVE'
  local code=$?
  ip link set v2 up
  ip link set v3 up
  return $code
}

no_address() {
  ip link add lonely type dummy
  ip link set lonely up
  rdma link add rxe9 type rxe netdev lonely
  refused rxe9 'no usable GID'
  local code=$?
  rdma link del rxe9
  return $code
}

with_netem() {
  tc qdisc add dev v0 root netem "$@"
  "$exercise" check rxe0 rxe1
  local code=$?
  tc qdisc del dev v0 root
  return $code
}

part one_device "$exercise" check rxe0 rxe0
part two_devices "$exercise" check rxe0 rxe1
part four_devices "$exercise" check rxe0,rxe2 rxe1,rxe3
part cancel "$exercise" cancel rxe0 rxe1
part break "$exercise" break rxe0,rxe2 rxe1,rxe3
part port_down "$exercise" ports rxe0,rxe2 rxe1,rxe3 \
  'sleep 1; ip link set v2 down; sleep 3; ip link set v2 up; sleep 2'
part loss with_netem loss 0.05%
part delay with_netem delay 2ms
part memlock without_memlock
part no_such_device refused mlx5_0 'there are: rxe0, rxe1, rxe2, rxe3'
part inactive_port inactive_port
part no_address no_address
part speed_1m speed 1048576 60 16
part speed_64k speed 65536 600 32
part speed_4k speed 4096 3000 64
