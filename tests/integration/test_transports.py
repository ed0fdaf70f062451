"""Which transports a node uses between nodes, on a machine that has no RDMA device."""

import json
from pathlib import Path

import pytest
from harness.peer import SUCCESS

MIB = 1 << 20

pytestmark = pytest.mark.skipif(any(Path("/sys/class/infiniband").glob("*")),
                                reason="this machine has RDMA devices")


def link_between(daemon, peer, hosts, cluster_key, config):
    """Moves 1 MiB both ways between a node with this configuration and one without any; the first
    node's description of their link."""
    pair = hosts(2)
    nodes = [daemon(host=pair[0], cluster_key=cluster_key, config=config),
             daemon(host=pair[1], cluster_key=cluster_key)]
    here, there = [peer(node) for node in nodes]
    local, remote = here.memory(MIB, seed=1), there.memory(MIB, seed=2)
    assert here.connect(there.engine) == SUCCESS
    for op in ("READ", "WRITE"):
        assert here.transfer(there.engine, op, [(local.address, remote.address, MIB)]) == SUCCESS
    assert local.crc() == remote.crc()
    return nodes[0], json.loads(nodes[0].ctl("links", "--json").stdout)["links"][0]


@pytest.mark.parametrize("config", [{}, {"node": {"transports": ["tcp"]}},
                                    {"node": {"transports": ["tcp", "rdma"]}}])
def test_without_a_device_links_are_tcp_and_nothing_is_said(daemon, peer, hosts, cluster_key, config):
    node, link = link_between(daemon, peer, hosts, cluster_key, config)
    assert (link["transport"], link.get("detail", "")) == ("tcp", "")
    assert {lane["transport"] for lane in link["lanes"]} == {"tcp"}
    assert not [line for line in node.log().splitlines() if "RDMA" in line and "warn" in line]


def test_a_device_that_is_missing_is_named_once_and_in_the_link(daemon, peer, hosts, cluster_key):
    node, link = link_between(daemon, peer, hosts, cluster_key, {"rdma": {"devices": ["mlx5_7"]}})
    assert link["transport"] == "tcp"
    for words in ("rdma.devices", "mlx5_7"):
        assert words in link["detail"]
        assert words in node.ctl("links").stdout
    said = [line for line in node.log().splitlines() if "RDMA is not used" in line]
    assert len(said) == 1 and "mlx5_7" in said[0] and "warn" in said[0]


@pytest.mark.parametrize("config, words", [
    ({"node": {"transports": ["rdma"]}}, ["node.transports", "no RDMA device"]),
    ({"node": {"transports": ["rdma"]}, "rdma": {"devices": ["mlx5_7"]}}, ["mlx5_7"]),
    ({"node": {"transports": ["hccs"]}}, ["hccs", "rdma | tcp"]),
    ({"node": {"transports": []}}, ["transports"]),
    ({"rdma": {"devices": ["mlx5_0:x"]}}, ["mlx5_0:x", "port number"]),
    ({"rdma": {"gid_index": "first"}}, ["gid_index", "auto, or 0..255"]),
    ({"rdma": {"mtu": 1500}}, ["mtu", "1024 | 2048"]),
    ({"rdma": {"traffic_class": 133}}, ["traffic_class", "multiple of 4"]),
    ({"rdma": {"lanes": 17}}, ["lanes", "1..16"]),
])
def test_what_cannot_be_is_refused_by_name(daemon, config, words):
    node = daemon(started=False, config=config)
    node.spawn()
    assert node.process.wait(60) == 2
    node.may_be_gone = True
    for word in words:
        assert word in node.log()
