# One or two hosts on this machine, each with its own hixld. Sourced; needs packages.sh.
#
# Two hosts are network namespaces joined by a veth pair; where those are not allowed, two loopback
# addresses stand for them. nodes_cleanup undoes all of it and may be called at any time.

NODE_DIRS=()       # runtime directory of each node's daemon
NODE_ADDRESSES=()  # IP address of each node
NODE_NAMESPACES=() # network namespace of each node; empty without namespaces
NODE_PIDS=()       # processes to end, daemons and demo processes alike
NODE_SCRATCH=

# as_node INDEX COMMAND...: becomes that command inside the node. Run it with & for a process.
as_node() {
  local namespace=${NODE_NAMESPACES[$1]:-}
  shift
  if [ -z "$namespace" ]; then
    exec "$@"
  elif [ "$(id -u)" -eq 0 ]; then
    exec ip netns exec "$namespace" "$@"
  else
    # sudo is needed to enter the namespace only; the process itself is the caller's.
    exec sudo ip netns exec "$namespace" setpriv "--reuid=$(id -u)" "--regid=$(id -g)" \
      --init-groups env "HOME=$HOME" "PATH=$PATH" "$@"
  fi
}

# start_in_node INDEX COMMAND...: starts a process in the node; its pid is in $! and is ended by
# nodes_cleanup.
start_in_node() {
  (as_node "$@") </dev/null &
  NODE_PIDS+=($!)
}

_make_namespaces() {
  local first=hxq$$a second=hxq$$b
  as_root ip netns add "$first" 2>/dev/null || return 1
  NODE_NAMESPACES=("$first")
  as_root ip netns add "$second" || return 1
  NODE_NAMESPACES=("$first" "$second")
  as_root ip -n "$first" link add data0 type veth peer name data0 netns "$second" || return 1
  local index
  for index in 0 1; do
    local namespace=${NODE_NAMESPACES[$index]}
    as_root ip -n "$namespace" addr add "10.77.0.$((index + 1))/24" dev data0 &&
      as_root ip -n "$namespace" link set data0 up &&
      as_root ip -n "$namespace" link set lo up || return 1
  done
  NODE_ADDRESSES=(10.77.0.1 10.77.0.2)
}

_drop_namespaces() {
  local namespace
  for namespace in "${NODE_NAMESPACES[@]}"; do
    as_root ip netns del "$namespace" 2>/dev/null
  done
  NODE_NAMESPACES=()
}

# make_nodes COUNT: prepares one node on 127.0.0.1 or two hosts.
make_nodes() {
  NODE_SCRATCH=$(mktemp -d /tmp/hixld-XXXXXX)
  if [ "$1" -eq 1 ]; then
    NODE_ADDRESSES=(127.0.0.1)
  elif ! _make_namespaces 2>"$NODE_SCRATCH/namespaces.log"; then
    _drop_namespaces
    echo "Network namespaces are not allowed here; two loopback addresses stand for two hosts."
    NODE_ADDRESSES=(127.0.0.2 127.0.0.3)
  fi
  (umask 077 && od -An -N32 -tx1 /dev/urandom | tr -d ' \n' >"$NODE_SCRATCH/cluster.key")
  local index
  for ((index = 0; index < $1; index++)); do
    NODE_DIRS+=("$NODE_SCRATCH/node$index")
    mkdir -m 700 "$NODE_SCRATCH/node$index"
  done
}

node_socket() { echo "${NODE_DIRS[$1]}/hixld.sock"; }

# start_daemon INDEX PREFIX: starts the node's hixld and waits until it answers.
start_daemon() {
  local index=$1 prefix=$2 socket log pid tries
  socket=$(node_socket "$index")
  log=${NODE_DIRS[$index]}/hixld.log
  start_in_node "$index" "$prefix/bin/hixld" --socket "$socket" \
    --cluster-key-file "$NODE_SCRATCH/cluster.key" >"$log" 2>&1
  pid=$!
  for ((tries = 0; tries < 150; tries++)); do
    "$prefix/bin/hixlctl" --socket "$socket" health >/dev/null 2>&1 && return 0
    kill -0 "$pid" 2>/dev/null || break
    sleep 0.1
  done
  echo "hixld of node $index does not answer; its log:" >&2
  cat "$log" >&2
  return 1
}

nodes_cleanup() {
  local pid
  for pid in "${NODE_PIDS[@]}"; do kill "$pid" 2>/dev/null; done
  for pid in "${NODE_PIDS[@]}"; do wait "$pid" 2>/dev/null; done
  NODE_PIDS=()
  _drop_namespaces
  [ -n "$NODE_SCRATCH" ] && rm -rf "$NODE_SCRATCH"
  NODE_SCRATCH=
}
