#!/bin/bash
# Runs in two test machines: a daemon and a bench in each, every byte of READs and WRITEs checked.
# two_nodes.sh PREFIX. The first machine serves until the second says over port 7001 that it is done.
prefix=$1
work=$(mktemp -d)
export PATH=$prefix/bin:$PATH HIXLD_NO_AUTOSTART=1 HIXLD_SOCKET=$work/hixld.sock
there=10.77.0.1
here=10.77.0.$((HIXLD_VM_NODE + 1))

mkfifo "$work/ready"
hixld --socket "$HIXLD_SOCKET" --ready-fd 9 --set 'rdma.devices=[rxe0]' --set rdma.ack_timeout=19 \
  --set rdma.message_bytes=256KiB \
  --set security.allow_unauthenticated_network=true 9>"$work/ready" 2>"$work/log" &
read -r said <"$work/ready"
[ "$said" = R ] || { cat "$work/log"; exit 1; }

if [ "$HIXLD_VM_NODE" = 0 ]; then
  hixl-bench target --serve --engine $here --listen $here:7000 >"$work/target" 2>&1 &
  exec python3 -c 'import socket; socket.create_server(("", 7001)).accept()'
fi

code=1
for _ in $(seq 20); do
  hixl-bench initiator --engine $here --target $there:7000 --quiet --timeout-ms 60000 --check \
    --iterations 2 --rounds 1 --warmup 1ms --block 4K,256K --batch 3 --op read,write \
    --layout scattered >"$work/said" 2>&1
  code=$?
  grep -q refused "$work/said" || break
  sleep 1
done
cat "$work/said"
hixlctl --timeout 30 links --json >"$work/links"
python3 - "$work/links" <<'PY' || code=1
import json, socket, sys
link = json.load(open(sys.argv[1]))["links"][0]
moved = sum(l["bytes_sent"] + l["bytes_received"] for l in link["lanes"] if l["transport"] == "rdma")
print("link over", link["transport"], link["detail"], moved, "bytes")
socket.create_connection(("10.77.0.1", 7001)).close()
sys.exit(0 if link["transport"] == "rdma" and moved > 2_000_000 else 1)
PY
[ $code -eq 0 ] || cat "$work/log"
exit $code
