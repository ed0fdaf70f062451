#!/bin/bash
# Runs in the test machine: its network and its RDMA devices, all in one name space.
#
# Alone, the machine has two wires with both ends in it, v0-v1 and v2-v3:
#   rxe0 10.77.0.1 - rxe1 10.77.0.2, rxe2 10.78.0.1 - rxe3 10.78.0.2
# Routing rules send packets between such addresses over the wire instead of around it.
# One of several, it has two network cards: rxe0 10.77.0.(node+1), rxe1 10.78.0.(node+1).
set -eu
. /run/machine/environment
ip link set lo up

# card INTERFACE ADDRESS RDMA_DEVICE
card() {
  ip link set "$1" mtu 9000 up
  ip addr add "$2/24" dev "$1"
  rdma link add "$3" type rxe netdev "$1"
}

# wire INTERFACE_A INTERFACE_B PREFIX TABLE
wire() {
  ip link add "$1" type veth peer name "$2"
  sysctl -qw net.ipv4.conf.{"$1","$2"}.{accept_local=1,rp_filter=0}
  ip rule add pref 1 iif "$1" lookup local
  ip rule add pref 1 iif "$2" lookup local
  card "$1" "$3.1" "rxe$5"
  card "$2" "$3.2" "rxe$(($5 + 1))"
  ip rule add pref 2 from "$3.1" to "$3.2" lookup "$4"
  ip rule add pref 2 from "$3.2" to "$3.1" lookup "$(($4 + 1))"
  ip route add "$3.2" dev "$1" src "$3.1" table "$4"
  ip route add "$3.1" dev "$2" src "$3.2" table "$(($4 + 1))"
}

if [ "$HIXLD_VM_NODES" -eq 1 ]; then
  sysctl -qw net.ipv4.conf.all.rp_filter=0
  wire v0 v1 10.77.0 100 0
  wire v2 v3 10.78.0 102 2
  ip rule add pref 10 lookup local
  ip rule del pref 0
else
  card eth0 "10.77.0.$((HIXLD_VM_NODE + 1))" rxe0
  card eth1 "10.78.0.$((HIXLD_VM_NODE + 1))" rxe1
fi
