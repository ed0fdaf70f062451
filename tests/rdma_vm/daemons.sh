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
# Processors that are emulated, and shared, acknowledge late: 2 s.
emulated=(--set rdma.ack_timeout=19 --set rdma.message_bytes=256KiB)
declare -A pid runs
wrapper=()

# start NAME DEVICE [KEY=VALUE...]: a daemon that serves, or the part fails. One that runs with the
# same settings stays, because a program takes seconds to start in an emulated processor.
start() {
  local name=$1 device=$2 settings=() setting said
  [ "${runs[$name]:-}" = "$*" ] && kill -0 "${pid[$name]}" 2>/dev/null && return
  stop "$name"
  runs[$name]=$*
  shift 2
  for setting in "$@"; do settings+=(--set "$setting"); done
  rm -f "$work/$name.ready"
  mkfifo "$work/$name.ready"
  : >"$work/$name.log"
  "${wrapper[@]}" hixld --socket "$work/$name.sock" --ready-fd 9 --set "rdma.devices=[$device]" \
    --set security.allow_unauthenticated_network=true "${emulated[@]}" "${settings[@]}" \
    9>"$work/$name.ready" 2>>"$work/$name.log" &
  pid[$name]=$!
  read -r said <"$work/$name.ready"
  [ "$said" = R ] || { echo "hixld $name: $said"; return 1; }
}

stop() {
  [ -n "${pid[$1]:-}" ] || return 0
  kill "${pid[$1]}" 2>/dev/null
  wait "${pid[$1]}" 2>/dev/null
  unset "pid[$1]" "runs[$1]"
}

ctl() {
  local name=$1
  shift
  hixlctl --socket "$work/$name.sock" --timeout 30 "$@"
}

# serve [OPTION...]: a target at the other end; `target` is its process, `address` where it waits.
serve() {
  : >"$work/target"
  HIXLD_SOCKET=$work/there.sock hixl-bench target --engine $there "$@" >"$work/target" 2>&1 &
  target=$!
  until address=$(grep -o -- '--target [^ ]*' "$work/target"); do
    kill -0 $target 2>/dev/null || { cat "$work/target"; return 1; }
    sleep 0.1
  done
}

end_target() {
  kill $target 2>/dev/null
  wait $target
}

initiator() {
  # shellcheck disable=SC2086  # an option and its value
  HIXLD_SOCKET=$work/here.sock hixl-bench initiator --engine $here $address --quiet \
    --timeout-ms 60000 "$@"
}

# bench ARGUMENTS...: from `here` to `there`; a target of its own for each call.
bench() {
  local code
  serve || return 1
  initiator "$@"
  code=$?
  end_target
  return $code
}

checked=(--check --iterations 2 --rounds 1 --warmup 1ms)

# What the wire's end at `here` has received and sent.
wire_bytes() {
  local received sent
  read -r received </sys/class/net/v0/statistics/rx_bytes
  read -r sent </sys/class/net/v0/statistics/tx_bytes
  echo $((received + sent))
}

# links: of `here`, into a file; FIELD RDMA_BYTES TCP_BYTES of them.
links() {
  ctl here links --json >"$work/links" && python3 - "$work/links" <<'PY'
import json, sys
link = json.load(open(sys.argv[1]))["links"][0]
moved = {"rdma": 0, "tcp": 0}
for lane in link["lanes"]:
    moved[lane["transport"]] += lane["bytes_sent"] + lane["bytes_received"]
print(moved["rdma"], moved["tcp"], link["transport"], link["detail"])
PY
}

every_byte() {
  start here rxe0 rdma.fallback_after=5s && start there rxe1 || return 1
  bench "${checked[@]}" --block 4K,64K,1M --batch 1,5 --op read,write --layout scattered || return 1
  bench "${checked[@]}" --memory memfd --block 3M --op mix || return 1
  local rdma tcp transport detail
  links >"$work/said" || return 1
  read -r rdma tcp transport detail <"$work/said"
  echo "bytes over RDMA $rdma, over TCP $tcp; link over $transport; $detail"
  # What comes before the first queue pair is up may go over TCP.
  [ "$transport" = rdma ] && [ -z "$detail" ] && [ "$rdma" -gt 40000000 ] &&
    [ $((tcp * 20)) -lt "$rdma" ]
}

# A target process and its daemon take no part in READs: its workers are not even woken.
no_processor_time() {
  start here rxe0 rdma.fallback_after=5s && start there rxe1 && serve || return 1
  initiator --op read --block 1M --batch 8 --duration 200s --rounds 1 --warmup 1ms >/dev/null 2>&1 &
  local code bench=$!
  python3 - "${pid[there]}" $bench <<'PY'
import glob, os, pathlib, sys, time
daemon, bench = sys.argv[1:]

def threads():
    found = {}
    for task in glob.glob(f"/proc/{daemon}/task/*"):
        name = pathlib.Path(task, "comm").read_text().strip()
        run, _, times = map(int, pathlib.Path(task, "schedstat").read_text().split())
        user, system = pathlib.Path(task, "stat").read_text().rpartition(")")[2].split()[11:13]
        found[f"{name} {os.path.basename(task)}"] = (int(user), int(system), run, times)
    return found

def moved():
    return int(pathlib.Path("/sys/class/net/v0/statistics/rx_bytes").read_text())

def wait_for(count):
    while moved() < count:
        os.kill(int(bench), 0)
        time.sleep(0.2)

# Queue pairs and keys are there, then.
wait_for(moved() + (12 << 20))
before, bytes_before = threads(), moved()
wait_for(bytes_before + (24 << 20))
bytes_after, after = moved(), threads()
print(f"{(bytes_after - bytes_before) >> 20} MiB were read meanwhile")
print("thread of the target's daemon      user  system  ns on a processor  times there")
ok = True
for name in sorted(after):
    spent = tuple(a - b for a, b in zip(after[name], before.get(name, (0, 0, 0, 0))))
    data = name.startswith(("hixld-w", "hixld-rdma"))
    print("%-32s %6d %7d %18d %12d%s" % (name, *spent, "  <- data path" if data else ""))
    ok &= not data or not any(spent[:2])
sys.exit(0 if ok else 1)
PY
  code=$?
  kill $bench
  wait $bench 2>/dev/null
  end_target
  return $code
}

traffic_classes() {
  start here rxe0 rdma.fallback_after=5s && start there rxe1 || return 1
  bench "${checked[@]}" --block 64K --setting RdmaTrafficClass=160 --setting RdmaServiceLevel=3 ||
    return 1
  ctl here links | tee "$work/links"
  # The node's own lanes, and as many of the engine's.
  [ "$(grep -c ' rdma .* up ' "$work/links")" -ge 4 ]
}

fall_back() {
  start here rxe0 rdma.fallback_after=5s && start there rxe1 'node.transports=[tcp]' || return 1
  bench "${checked[@]}" --block 64K,1M || return 1
  local said
  said=$(links)
  echo "$said"
  grep 'peer link over TCP' "$work/here.log"
  [[ $said == *" tcp no RDMA: the peer serves no RDMA"* ]] &&
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
  start here rxe0 rdma.fallback_after=5s && start there rxe1 && serve || return 1
  local before bench over=false try
  before=$(wire_bytes)
  initiator --check --op read --block 1M --duration 8s --rounds 1 --warmup 1ms >"$work/said" 2>&1 &
  bench=$!
  until [ $(($(wire_bytes) - before)) -gt 2000000 ]; do
    kill -0 $bench 2>/dev/null || { cat "$work/said"; return 1; }
    sleep 0.2
  done
  ip link set v0 down
  wait $bench || { cat "$work/said"; return 1; }
  end_target
  grep -h 'RDMA event' "$work/here.log" | cut -c1-200 | tail -5
  grep 'go over TCP' "$work/here.log" || return 1
  # The kernel has forgotten the route of an interface that went down.
  ip link set v0 up
  ip route replace $there dev v0 src $here table 100
  bench "${checked[@]}" --block 64K || return 1
  for try in $(seq 20); do
    links | tee "$work/said"
    grep -q ' rdma $' "$work/said" && over=true && break
    sleep 1
  done
  $over
}

peer_killed() {
  start here rxe0 rdma.fallback_after=5s && start there rxe1 && serve || return 1
  local before begin code
  before=$(wire_bytes)
  initiator --op write --block 1M --duration 100s --rounds 1 --warmup 1ms >"$work/said" 2>&1 &
  local bench=$!
  until [ $(($(wire_bytes) - before)) -gt 2000000 ]; do
    kill -0 $bench 2>/dev/null || { cat "$work/said"; return 1; }
    sleep 0.2
  done
  kill -9 "${pid[there]}"
  begin=$SECONDS
  wait $bench
  code=$?
  echo "the initiator ended with $code after $((SECONDS - begin)) s: $(tail -1 "$work/said")"
  end_target
  # It failed by itself, well before its own timeout, and the daemon serves on.
  [ $code -ne 0 ] && [ $((SECONDS - begin)) -lt 50 ] && [ "$(ctl here health)" = serving ]
}

too_little_memlock() {
  wrapper=(setpriv --bounding-set -ipc_lock --inh-caps -ipc_lock prlimit --memlock=65536:65536 --)
  # Another setting than before, so that the daemon is started anew.
  start here rxe0 rdma.fallback_after=5100ms || return 1
  wrapper=()
  start there rxe1 && bench "${checked[@]}" --block 1M || return 1
  local said
  said=$(links)
  echo "$said"
  grep -h 'RLIMIT_MEMLOCK is 65536 bytes' "$work/here.log" | head -1 | cut -c1-300 || return 1
  [[ $said == *RLIMIT_MEMLOCK* ]] || return 1
  ctl here doctor >"$work/said" && return 1
  grep 'memlock .*problem' "$work/said"
}

doctor() {
  start here rxe0 rdma.fallback_after=5s || return 1
  ctl here doctor | tee "$work/said"
  grep -q 'rdma port rxe0:1 *good' "$work/said" && grep -q 'rdma gids rxe0:1 *good' "$work/said"
}

# part NAME: runs it; what it started goes on for the next, unless it failed.
part() {
  [ "$wanted" = "  " ] || [[ $wanted == *" $1 "* ]] || return
  local begin=$SECONDS code guard
  echo "-- $1"
  ( sleep 300; echo "part $1 takes too long"; kill -KILL 0 ) &
  guard=$!
  "$1" 2>&1
  code=$?
  kill $guard
  if [ $code -ne 0 ]; then
    tail -n 40 "$work"/*.log
    stop here
    stop there
  fi
  echo "== $1 $code $((SECONDS - begin))"
}

for name in every_byte doctor no_processor_time traffic_classes port_down peer_killed fall_back \
  no_fall_back without_a_device too_little_memlock; do
  part $name
done
exit 0
