#!/bin/bash
# Runs in the test machine: the same work by perftest and by two daemons, over the same two devices.
# compare.sh PREFIX. Prints "perftest OPERATION BYTES DEPTH BATCH MIB_PER_S" and the same of hixld with the
# line of its results in the place of the speed, in turns, beginning and ending with perftest.
prefix=$1
work=$(mktemp -d)
export PATH=$prefix/bin:$PATH HIXLD_NO_AUTOSTART=1
here=10.77.0.1
there=10.77.0.2

# start NAME DEVICE DEPTH: one queue pair with DEPTH operations under way, as perftest has (a place more,
# which the daemon keeps free); acknowledged late, as emulated processors do.
start() {
  mkfifo "$work/$1.ready"
  hixld --socket "$work/$1.sock" --ready-fd 9 --set "rdma.devices=[$2]" --set rdma.lanes=1 \
    --set rdma.queue_depth=$(($3 + 1)) --set security.allow_unauthenticated_network=true \
    --set rdma.ack_timeout=19 9>"$work/$1.ready" 2>"$work/$1.log" &
  daemons+=($!)
  read -r said <"$work/$1.ready"
  [ "$said" = R ] || { cat "$work/$1.log"; exit 1; }
  for task in /proc/$!/task/*; do
    case $(cat "$task/comm") in hixld-w*) taskset -pc 1 "${task##*/}" >/dev/null ;; esac
  done
}

stop() {
  kill "${daemons[@]}"
  wait "${daemons[@]}"
  daemons=()
  rm "$work"/*.ready
}

# perftest OPERATION BYTES ITERATIONS DEPTH BATCH: its average. It measures nothing (0.00) when it
# could not find out how fast the clock is, and tries again.
perftest() {
  local common=(-s "$2" -n "$3" -t "$4" -u 19 -F) server moved tries
  for tries in 1 2 3; do
    "ib_$1_bw" -d rxe1 "${common[@]}" >/dev/null 2>&1 &
    server=$!
    until [ -n "$(ss -Hltn 'sport = 18515')" ]; do sleep 0.1; done
    moved=$(taskset -c 1 "ib_$1_bw" -d rxe0 "${common[@]}" $there 2>/dev/null | awk -v s="$2" '$1 == s { print $4 }')
    wait $server
    [[ $moved =~ ^[0-9.]+$ ]] && [ "$moved" != 0.00 ] && break
  done
  echo "perftest $1 $2 $4 $5 $moved"
}

# bench OPERATION BYTES DEPTH BATCH: one round. Blocks lie apart: neighbours would become one. Four
# times DEPTH is submitted, so that the queue pair is refilled at once, as perftest's is; the submitting
# thread, which perftest has none of, gives way to what receives the packets on its processor.
bench() {
  local target address
  HIXLD_SOCKET=$work/there.sock hixl-bench target --engine $there >"$work/target" 2>&1 &
  target=$!
  until address=$(grep -o -- '--target [^ ]*' "$work/target"); do sleep 0.1; done
  rm -f "$work/jsonl"
  # shellcheck disable=SC2086  # an option and its value
  HIXLD_SOCKET=$work/here.sock nice -n 19 hixl-bench initiator --engine $here $address --quiet \
    --timeout-ms 60000 --op "$1" --block "$2" --batch "$4" --layout scattered --async \
    --depth $((4 * $3 / $4)) --rounds 1 --duration 2s --warmup 300ms \
    --jsonl "$work/jsonl" >"$work/said" 2>&1 || { cat "$work/said"; exit 1; }
  kill $target 2>/dev/null
  wait $target
  echo "hixld $1 $2 $3 $4 $(cat "$work/jsonl")"
}

# One processor posts and polls, for perftest as for the daemon (its worker); the other receives the
# packets (network.sh) and runs all else. Left to the scheduler, each run has one of several speeds.
taskset -pc 0 $$ >/dev/null
daemons=()
while read -r size iterations depth batch; do
  start here rxe0 "$depth"
  start there rxe1 "$depth"
  for operation in write read; do
    perftest $operation "$size" "$iterations" "$depth" "$batch"
    for round in 1 2 3 4 5 6; do
      bench $operation "$size" "$depth" "$batch"
      perftest $operation "$size" "$iterations" "$depth" "$batch"
    done
  done
  stop
done <<'SIZES'
1048576 120 16 1
65536 2000 32 16
4096 30000 64 32
4096 30000 64 1
SIZES
