#!/bin/bash
# Runs in the test machine: two daemons at the two ends of a wire, one "== NAME CODE SECONDS" line per
# part. daemons.sh PREFIX [PART...]
prefix=$1
shift
wanted=" $* "
work=$(mktemp -d)
export PATH=$prefix/bin:$PATH HIXLD_NO_AUTOSTART=1
here=10.77.0.1
there=10.77.0.2
declare -A pid

# start NAME DEVICE [WRAPPER... --] [KEY=VALUE...]: a daemon that serves, or the part fails.
start() {
  local name=$1 device=$2 settings=() wrapper=()
  shift 2
  if [ "${1:-}" = --wrap ]; then
    shift
    while [ "$1" != -- ]; do wrapper+=("$1"); shift; done
    shift
  fi
  for setting in "$@"; do settings+=(--set "$setting"); done
  rm -f "$work/$name.ready"
  mkfifo "$work/$name.ready"
  "${wrapper[@]}" hixld --socket "$work/$name.sock" --ready-fd 9 --set "rdma.devices=[$device]" \
    --set security.allow_unauthenticated_network=true "${settings[@]}" \
    9>"$work/$name.ready" 2>>"$work/$name.log" &
  pid[$name]=$!
  local said
  read -r said <"$work/$name.ready"
  [ "$said" = R ] || { echo "hixld $name: $said"; return 1; }
}

stop() {
  kill "${pid[$1]}" && wait "${pid[$1]}"
}

ctl() {
  local name=$1
  shift
  hixlctl --socket "$work/$name.sock" "$@"
}

# bench ARGUMENTS...: from `here` to `there`; a target of its own for each call.
bench() {
  local target address code
  HIXLD_SOCKET=$work/there.sock hixl-bench target --engine $there >"$work/target" 2>&1 &
  target=$!
  until address=$(grep -o -- '--target [^ ]*' "$work/target"); do
    kill -0 $target 2>/dev/null || { cat "$work/target"; return 1; }
    sleep 0.1
  done
  # shellcheck disable=SC2086
  HIXLD_SOCKET=$work/here.sock hixl-bench initiator --engine $here $address --quiet --timeout-ms 60000 \
    "$@"
  code=$?
  kill $target 2>/dev/null
  wait $target
  return $code
}

checked=(--check --iterations 3 --rounds 1 --warmup 1ms)

# The link's row as "transport detail".
link() {
  ctl here links --json | python3 -c '
import json, sys
link = json.load(sys.stdin)["links"][0]
print(link["transport"], link["detail"])'
}

bytes_over() {
  ctl here links --json | python3 -c '
import json, sys
lanes = [l for link in json.load(sys.stdin)["links"] for l in link["lanes"]]
print(sum(l["bytes_sent"] + l["bytes_received"] for l in lanes if l["transport"] == sys.argv[1]))
' "$1"
}

every_byte() {
  start here rxe0 && start there rxe1 || return 1
  bench "${checked[@]}" --block 4K,64K,1M --batch 1,5 --op read,write,mix --layout scattered || return 1
  bench "${checked[@]}" --memory memfd --block 3M --op mix || return 1
  link
  [ "$(link)" = "rdma " ] || return 1
  local rdma tcp
  rdma=$(bytes_over rdma)
  tcp=$(bytes_over tcp)
  echo "bytes over RDMA $rdma, over TCP $tcp"
  [ "$rdma" -gt 1000000 ] && [ "$tcp" -eq 0 ]
}

# A target process and its daemon take no part in READs: its workers are not even woken.
no_processor_time() {
  start here rxe0 && start there rxe1 || return 1
  # Sets up lanes and keys.
  HIXLD_SOCKET=$work/there.sock hixl-bench target --serve --engine $there >"$work/target" 2>&1 &
  local target=$! address
  until address=$(grep -o -- '--target [^ ]*' "$work/target"); do sleep 0.1; done
  local common=(initiator --engine "$here" $address --quiet --timeout-ms 60000 --op read --block 1M
    --batch 8 --rounds 1 --warmup 1ms)
  HIXLD_SOCKET=$work/here.sock python3 - "$work" "${pid[there]}" "${common[@]}" <<'PY'
import glob, json, pathlib, subprocess, sys, time
work, daemon, common = sys.argv[1], sys.argv[2], sys.argv[3:]

def threads():
    found = {}
    for task in glob.glob(f"/proc/{daemon}/task/*"):
        name = pathlib.Path(task, "comm").read_text().strip()
        run, _, times = map(int, pathlib.Path(task, "schedstat").read_text().split())
        found[f"{name} {task.rsplit('/')[-1]}"] = (run, times)
    return found

def moved():
    said = subprocess.run(["hixlctl", "--socket", f"{work}/here.sock", "links", "--json"],
                          capture_output=True, text=True, check=True).stdout
    lanes = [lane for link in json.loads(said)["links"] for lane in link["lanes"]]
    return sum(lane["bytes_received"] for lane in lanes if lane["transport"] == "rdma")

def wait_for(count):
    while moved() < count:
        assert bench.poll() is None, "the initiator ended too early"
        time.sleep(0.2)

bench = subprocess.Popen(["hixl-bench", *common, "--duration", "100s"])
# The lanes are up and the keys are there.
wait_for(16 << 20)
before, bytes_before = threads(), moved()
wait_for(bytes_before + (32 << 20))
bytes_after, after = moved(), threads()
bench.kill()
bench.wait()
print(f"{(bytes_after - bytes_before) >> 20} MiB were read meanwhile")
ok = True
for name in sorted(after):
    run, times = (a - b for a, b in zip(after[name], before.get(name, (0, 0))))
    data = name.startswith(("hixld-w", "hixld-rdma"))
    print(f"{name}: {run} ns on a processor, {times} times{'  <- data path' if data else ''}")
    ok &= not data or (run, times) == (0, 0)
sys.exit(0 if ok else 1)
PY
  local code=$?
  kill $target
  wait $target
  return $code
}

traffic_classes() {
  start here rxe0 && start there rxe1 || return 1
  bench "${checked[@]}" --block 64K --setting RdmaTrafficClass=160 --setting RdmaServiceLevel=3 ||
    return 1
  ctl here links
  # The node's own lanes, and as many of the engine's.
  [ "$(ctl here links | grep -c ' rdma .* up ')" -ge 4 ]
}

fall_back() {
  start here rxe0 && start there rxe1 'node.transports=[tcp]' || return 1
  bench "${checked[@]}" --block 64K,1M || return 1
  link
  grep 'peer link over TCP' "$work/here.log"
  [[ $(link) == "tcp no RDMA: the peer serves no RDMA"* ]] &&
    [ "$(grep -c 'peer link over TCP' "$work/here.log")" -eq 1 ]
}

no_fall_back() {
  start here rxe0 'node.transports=[rdma]' && start there rxe1 'node.transports=[tcp]' || return 1
  bench "${checked[@]}" --block 64K >"$work/said" 2>&1 && return 1
  grep -h 'no transport in common' "$work/said" "$work/here.log"
}

without_a_device() {
  start here mlx5_0 || return 1
  grep 'rdma.devices names mlx5_0' "$work/here.log" || return 1
  stop here
  start here mlx5_0 'node.transports=[rdma]' && return 1
  grep 'nothing but rdma' "$work/here.log"
}

# The wire is cut for a while: transfers move to TCP (which goes another way) and return.
port_down() {
  start here rxe0 rdma.fallback_after=1s && start there rxe1 || return 1
  # The kernel forgets the routes of an interface that goes down.
  ( sleep 3; ip link set v0 down; sleep 6; ip link set v0 up
    ip route replace $there dev v0 src $here table 100 ) &
  local cut=$!
  bench --check --op read --block 1M --duration 3s --rounds 5 --warmup 1ms || return 1
  wait $cut
  grep -h 'RDMA event' "$work/here.log" | cut -c1-200 | head -20
  grep -q 'go over TCP' "$work/here.log" || return 1
  bench "${checked[@]}" --block 64K || return 1
  [[ $(link) == rdma* ]]
}

peer_killed() {
  start here rxe0 && start there rxe1 || return 1
  HIXLD_SOCKET=$work/there.sock hixl-bench target --engine $there >"$work/target" 2>&1 &
  local target=$! address begin
  until address=$(grep -o -- '--target [^ ]*' "$work/target"); do sleep 0.1; done
  # shellcheck disable=SC2086
  HIXLD_SOCKET=$work/here.sock timeout 90 hixl-bench initiator --engine $here $address --quiet \
    --op write --block 1M --duration 60s --rounds 1 --timeout-ms 60000 >"$work/said" 2>&1 &
  local initiator=$!
  until [ "$(bytes_over rdma 2>/dev/null || echo 0)" -gt 1000000 ]; do sleep 0.3; done
  kill -9 "${pid[there]}"
  begin=$SECONDS
  wait $initiator
  local code=$?
  echo "the initiator ended with $code after $((SECONDS - begin)) s: $(tail -1 "$work/said")"
  kill $target 2>/dev/null
  wait $target
  # It failed by itself, well before its own timeout, and the daemon serves on.
  [ $code -ne 0 ] && [ $code -ne 124 ] && [ $((SECONDS - begin)) -lt 30 ] &&
    [ "$(ctl here health)" = serving ]
}

too_little_memlock() {
  start here rxe0 --wrap setpriv --bounding-set -ipc_lock --inh-caps -ipc_lock \
    prlimit --memlock=65536:65536 -- && start there rxe1 || return 1
  bench "${checked[@]}" --block 1M || return 1
  link
  grep -h 'RLIMIT_MEMLOCK is 65536 bytes' "$work/here.log" | head -1 | cut -c1-300 || return 1
  [[ $(link) == *RLIMIT_MEMLOCK* ]] || return 1
  ctl here doctor && return 1
  ctl here doctor | grep 'memlock .*problem'
}

doctor() {
  start here rxe0 || return 1
  ctl here doctor
  ctl here doctor | grep -q 'rdma port rxe0:1 *good' &&
    ctl here doctor --json | python3 -c '
import json, sys
found = {f["check"]: f["level"] for f in json.load(sys.stdin)["findings"]}
assert found["rdma gids rxe0:1"] == "good", found'
}

# perftest OPERATION SIZE ITERATIONS DEPTH: its average MB/s (2^20) between the same devices.
perftest() {
  local common=(-s "$2" -n "$3" -t "$4" -F)
  "ib_$1_bw" -d rxe1 "${common[@]}" >/dev/null 2>&1 &
  local server=$!
  until [ -n "$(ss -Hltn 'sport = 18515')" ]; do sleep 0.1; done
  "ib_$1_bw" -d rxe0 "${common[@]}" $there | awk -v size="$2" '$1 == size { print $4 }'
  wait $server
}

# The same work by both, in turns; medians of three.
beside_perftest() {
  start here rxe0 rdma.lanes=1 && start there rxe1 || return 1
  local operation size depth batch iterations round
  while read -r size iterations depth batch; do
    for operation in write read; do
      for round in 1 2 3; do
        echo "perftest $operation $size depth $depth MiB/s $(perftest $operation "$size" "$iterations" "$depth")"
        bench --op $operation --block "$size" --batch "$batch" --async --depth $((depth / batch)) \
          --rounds 1 --duration 3s --warmup 300ms --jsonl "$work/jsonl" >/dev/null || return 1
        python3 - "$work/jsonl" "$operation" "$size" "$depth" <<'PY'
import json, sys
line = json.loads(open(sys.argv[1]).readlines()[-1])
print("hixld", *sys.argv[2:4], "depth", sys.argv[4], "MiB/s %.2f" % (line["gb_per_s"] * 1e9 / 2**20))
PY
      done
    done
  done <<'SIZES'
1048576 40 16 1
65536 400 32 16
4096 2000 64 1
SIZES
}

# part NAME: runs it with fresh logs and ends what it started.
part() {
  [ "$wanted" = "  " ] || [[ $wanted == *" $1 "* ]] || return
  local begin=$SECONDS code name guard
  echo "-- $1"
  rm -f "$work"/*
  ( sleep 300; echo "part $1 takes too long"; kill -KILL 0 ) &
  guard=$!
  "$1" 2>&1
  code=$?
  kill $guard
  for name in "${!pid[@]}"; do
    kill "${pid[$name]}" 2>/dev/null && wait "${pid[$name]}" 2>/dev/null
    unset "pid[$name]"
  done
  [ $code -eq 0 ] || tail -n 40 "$work"/*.log
  echo "== $1 $code $((SECONDS - begin))"
}

for name in every_byte no_processor_time traffic_classes fall_back no_fall_back without_a_device \
  port_down peer_killed too_little_memlock doctor; do
  part $name
done
[[ $wanted == *" beside_perftest "* ]] && part beside_perftest
exit 0
