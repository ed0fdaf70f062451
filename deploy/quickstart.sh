#!/usr/bin/env bash
# Builds hixld and shows it at work: a KV cache moves from a prefill to a decode process.
#
#   deploy/quickstart.sh           two daemons as two hosts
#   deploy/quickstart.sh --local   one daemon, both processes on it
#   deploy/quickstart.sh --keep    afterwards leave the daemons up until Enter or Ctrl-C
#
# Needs Debian 12 and nothing else; missing packages are installed (as root or through sudo).
# Exit code 0: text was generated, its tokens equal those of a single-process run, all was measured.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=deploy/lib/packages.sh
. deploy/lib/packages.sh
# shellcheck source=deploy/lib/nodes.sh
. deploy/lib/nodes.sh

PROMPT='The two ladies walked slowly through the garden, and for some time neither of them spoke. '
PROMPT+='At last the younger, who could not bear to be silent any longer, turned to her friend and said'

nodes=2
keep=false
for argument; do
  case $argument in
    --local) nodes=1 ;;
    --keep) keep=true ;;
    -h | --help) sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "unknown option $argument (allowed: --local, --keep)" >&2; exit 2 ;;
  esac
done

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }

# demo_command INDEX SCRIPT...: sets DEMO to the command line of a demo process on a node.
demo_command() {
  local index=$1
  shift
  DEMO=(env "HIXLD_SOCKET=$(node_socket "$index")" "PYTHONPATH=$prefix/python"
    PYTHONDONTWRITEBYTECODE=1 /usr/bin/python3 "$@")
}

run_demo() {
  local last=$((nodes - 1)) prefill status=0
  demo_command 0 deploy/demo/prefill.py --engine "${NODE_ADDRESSES[0]}:26000" --prompt "$PROMPT"
  start_in_node 0 "${DEMO[@]}"
  prefill=$!
  demo_command "$last" deploy/demo/decode.py --engine "${NODE_ADDRESSES[$last]}:26001" \
    --prefill-host "${NODE_ADDRESSES[0]}" --streams "$lanes"
  start_in_node "$last" "${DEMO[@]}"
  wait $! || status=1
  # Without a decoder the prefill side would wait for one.
  [ $status -eq 0 ] || kill "$prefill" 2>/dev/null
  wait "$prefill" || status=1
  return $status
}

look_further() {
  local ctl=$prefix/bin/hixlctl index command
  for ((index = 0; index < nodes; index++)); do
    for command in status links; do
      say "$ctl --socket $(node_socket $index) $command"
      "$ctl" --socket "$(node_socket $index)" "$command"
    done
  done
  if $keep; then
    say "The daemons run until you press Enter. Other commands: sessions, engines, regions, transfers."
    read -r _
  else
    say "With --keep the daemons stay up, so that these commands can be tried in another terminal."
  fi
}

prefix=$PWD/.cache/install
# Those of tcp: other transports have keys of the same name.
lanes=$(sed -n '/^tcp:/,/^[a-z]/s/^  lanes: *\([0-9]*\).*/\1/p' config/hixld.yaml)

say "1. Packages"
ensure_packages deploy/packages.txt build demo || exit 1
say "2. Build and install to $prefix"
deploy/install.sh --prefix "$prefix" || exit 1

trap nodes_cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
say "3. Start $nodes hixld"
make_nodes "$nodes" || exit 1
for ((index = 0; index < nodes; index++)); do
  start_daemon "$index" "$prefix" || exit 1
  echo "node $index: ${NODE_ADDRESSES[$index]}, socket $(node_socket $index)"
done
say "4. Prefill on node 0, decode on node $((nodes - 1))"
if run_demo; then
  say "5. Look further"
  look_further
  say "All held."
else
  say "Something did not hold; the daemons said:"
  cat "${NODE_DIRS[@]/%//hixld.log}"
  exit 1
fi
