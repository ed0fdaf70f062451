#!/bin/bash
# Runs in the test machine: the RDMA transport on its devices, one "== NAME CODE SECONDS" line per
# part. suite.sh EXERCISE [PART...]
export exercise=$1
shift
wanted=" $* "

# part NAME COMMAND...
part() {
  local name=$1 begin=$SECONDS
  shift
  [ "$wanted" = "  " ] || [[ $wanted == *" $name "* ]] || return
  echo "-- $name"
  # The command may be one of the functions here.
  timeout 150 bash -c '"$@"' part "$@" 2>&1
  echo "== $name $? $((SECONDS - begin))"
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

export -f without_memlock refused inactive_port no_address with_netem

part one_device "$exercise" check rxe0 rxe0
part four_devices "$exercise" check rxe0,rxe2 rxe1,rxe3
part pieces "$exercise" pieces rxe0 rxe1
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
exit 0
