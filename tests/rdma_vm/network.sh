#!/bin/bash
# Runs in the test machine: its network and its RDMA devices, all in one name space.
#
# Alone, the machine has two wires with both ends in it, v0-v1 and v2-v3:
#   rxe0 10.77.0.1 - rxe1 10.77.0.2, rxe2 10.78.0.1 - rxe3 10.78.0.2
# Routing rules send packets between such addresses over the wire instead of around it.
# One of several, it has two network cards: rxe0 10.77.0.(node+1), rxe1 10.78.0.(node+1).
set -eu
. /run/machine/environment

# setting VALUE INTERFACE NAME: of IPv4.
setting() { echo "$1" >"/proc/sys/net/ipv4/conf/$2/$3"; }

# wire A B PREFIX TABLE RXE: commands for ip. A program takes its time to start in an emulated
# processor, so one runs them all.
wire() {
  cat <<COMMANDS
link add $1 type veth peer name $2
link set $1 mtu 9000 up
link set $2 mtu 9000 up
addr add $3.1/24 dev $1
addr add $3.2/24 dev $2
rule add pref 1 iif $1 lookup local
rule add pref 1 iif $2 lookup local
rule add pref 2 from $3.1 to $3.2 lookup $4
rule add pref 2 from $3.2 to $3.1 lookup $(($4 + 1))
route add $3.2 dev $1 src $3.1 table $4
route add $3.1 dev $2 src $3.2 table $(($4 + 1))
COMMANDS
}

# card INTERFACE ADDRESS: likewise.
card() {
  printf '%s\n' "link set $1 mtu 9000 up" "addr add $2/24 dev $1"
}

# devices INTERFACE...: rxe0, rxe1, ... on them.
devices() {
  local index=0 interface
  for interface in "$@"; do
    echo "link add rxe$index type rxe netdev $interface"
    index=$((index + 1))
  done | rdma -b -
}

if [ "$HIXLD_VM_NODES" -eq 1 ]; then
  {
    echo "link set lo up"
    wire v0 v1 10.77.0 100
    wire v2 v3 10.78.0 102
    # Behind the wires' rules.
    echo "rule add pref 10 lookup local"
    echo "rule del pref 0"
  } | ip -batch -
  setting 0 all rp_filter
  for interface in v0 v1 v2 v3; do
    setting 1 $interface accept_local
    setting 0 $interface rp_filter
  done
  # One processor receives what comes out of an end of a wire, so that packets that are sent by
  # both stay in order: a queue pair takes one that overtook another for a loss.
  for interface in v0 v1 v2 v3; do
    echo 1 >/sys/class/net/$interface/queues/rx-0/rps_cpus
  done
  devices v0 v1 v2 v3
else
  {
    echo "link set lo up"
    card eth0 "10.77.0.$((HIXLD_VM_NODE + 1))"
    card eth1 "10.78.0.$((HIXLD_VM_NODE + 1))"
  } | ip -batch -
  devices eth0 eth1
fi
