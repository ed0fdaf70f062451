"""How transfers use the network: several interfaces at once, tiny transfers merged."""

import json

import pytest
from harness.peer import SUCCESS

MIB = 1 << 20


def test_lanes_share_the_interfaces(hosts, daemon, peer, cluster_key):
    pair = hosts(2)
    pair.add_cables(1)
    config = {"tcp": {"interfaces": ["data0", "data1"], "lanes": 4}}
    here, there = [peer(daemon(host=host, cluster_key=cluster_key, config=config)) for host in pair]
    local, remote = here.memory(64 * MIB), there.memory(64 * MIB, seed=1)
    assert here.connect(there.engine) == SUCCESS
    before = [[host.sent_bytes(name) for name in ("data0", "data1")] for host in pair]
    for op in ("READ", "WRITE"):
        for _ in range(4):
            assert here.transfer(there.engine, op, [(local.address, remote.address, 64 * MIB)]) == SUCCESS
    assert local.crc() == remote.crc()
    for host, was in zip(pair, before):
        sent = [host.sent_bytes(name) - start for name, start in zip(("data0", "data1"), was)]
        assert sum(sent) > 256 * MIB
        # Idle lanes take stripes, so neither way can be left to the other.
        assert min(sent) > sum(sent) / 5, sent


def test_a_cable_that_breaks_hands_its_work_to_the_other(hosts, daemon, peer, cluster_key):
    pair = hosts(2)
    pair.add_cables(1)
    config = {"tcp": {"interfaces": ["data0", "data1"], "lanes": 2, "keepalive_interval": "100ms",
                      "keepalive_timeout": "1s"}}
    here, there = [peer(daemon(host=host, cluster_key=cluster_key, config=config)) for host in pair]
    local, remote = here.memory(8 * MIB), there.memory(8 * MIB, seed=2)
    assert here.connect(there.engine) == SUCCESS
    pieces = [(local.address, remote.address, 8 * MIB)]
    assert here.transfer(there.engine, "READ", pieces) == SUCCESS
    pair[1].ip("link", "set", "data1", "down")
    for _ in range(3):
        assert here.transfer(there.engine, "READ", pieces, timeout_ms=30_000) == SUCCESS
        assert here.transfer(there.engine, "WRITE", pieces, timeout_ms=30_000) == SUCCESS
    assert local.crc() == remote.crc()


@pytest.mark.parametrize("kind", ["pool", "plain"])
def test_writes_without_a_copy_bring_the_same_bytes(hosts, daemon, peer, cluster_key, kind):
    nodes = [daemon(host=host, cluster_key=cluster_key, config={"tcp": {"zero_copy_bytes": "16KiB"}})
             for host in hosts(2)]
    here, there = [peer(node) for node in nodes]
    local, remote = here.memory(32 * MIB, kind, seed=7), there.memory(32 * MIB, kind)
    assert here.connect(there.engine) == SUCCESS
    large = [(local.address, remote.address, 20 * MIB + 13)]
    blocks = [(local.address + (24 << 20) + i * 40_000, remote.address + (24 << 20) + i * 40_000, 30_000)
              for i in range(100)]
    small = [(local.address + (30 << 20) + i * 300, remote.address + (30 << 20) + i * 300, 200)
             for i in range(100)]
    assert here.transfer(there.engine, "WRITE", large + blocks + small) == SUCCESS
    for source, _, length in large + blocks[::9] + small[::9]:
        offset = source - local.address
        assert local.crc(offset, length) == remote.crc(offset, length)
    lanes = json.loads(nodes[0].ctl("links", "--json").stdout)["links"][0]["lanes"]
    uncopied = sum(lane["bytes_uncopied"] for lane in lanes)
    # Memory of the process itself has no file to send from.
    assert (uncopied > 20 * MIB) if kind == "pool" else uncopied == 0
    assert here.transfer(there.engine, "READ", large + blocks) == SUCCESS


BATCHING = {"batching": {"window_us": 2000, "max_requests": 16, "max_bytes": "64KiB"}}

FLOOD = """
import time
requests = []
for i in range(count):
    status, request = engine.transfer_async(
        remote, getattr(hixl.TransferOp, op), [hixl.TransferOpDesc(local + i * 1024, there + i * 1024, 1000)])
    requests.append(request if status == 0 else None)
states = []
deadline = time.monotonic() + 30
for request in requests:
    while True:
        if request is None:
            state = hixl.TransferStatus.FAILED
            break
        status, state = engine.get_transfer_status(request)
        if state != hixl.TransferStatus.WAITING or time.monotonic() > deadline:
            break
    states.append(state.name)
states
"""


def status_of(node):
    return json.loads(node.ctl("status", "--json").stdout)["status"]


@pytest.mark.parametrize("op", ["READ", "WRITE"])
def test_tiny_transfers_go_together_and_end_one_by_one(hosts, daemon, peer, cluster_key, op):
    nodes = [daemon(host=host, cluster_key=cluster_key, config=BATCHING) for host in hosts(2)]
    here, there = [peer(node) for node in nodes]
    local = here.memory(MIB, seed=3 if op == "WRITE" else None)
    remote = there.memory(MIB, seed=4 if op == "READ" else None)
    assert here.connect(there.engine) == SUCCESS
    states = here.run(FLOOD, remote=there.engine, op=op, local=local.address, there=remote.address,
                      count=512)
    assert set(states) == {"COMPLETED"}
    for i in (0, 1, 17, 511):
        assert local.crc(i * 1024, 1000) == remote.crc(i * 1024, 1000)
    shown = status_of(nodes[0])
    assert shown["transfers_completed"] == 512
    assert shown["merges"] > 0
    assert shown["merges"] * 2 <= shown["merged_transfers"] <= min(512, shown["merges"] * 16)
    assert "sent as" in nodes[0].ctl("status").stdout


def test_a_bad_transfer_among_merged_ones_fails_alone(hosts, daemon, peer, cluster_key):
    nodes = [daemon(host=host, cluster_key=cluster_key, config=BATCHING) for host in hosts(2)]
    here, there = [peer(node) for node in nodes]
    local, remote = here.memory(MIB), there.memory(MIB, seed=5)
    assert here.connect(there.engine) == SUCCESS
    # What is not registered there any more is refused by this side, once it has heard of it, or
    # fails; what is merged with it does not.
    assert there.run("engine.deregister_mem(handle)", handle=remote.handle) == SUCCESS
    assert there.run("""
status, kept = engine.register_mem(hixl.MemDesc(address, 64 * 1024), hixl.MemType.MEM_HOST)
status
""", address=remote.address) == SUCCESS
    states = here.run(FLOOD, remote=there.engine, op="READ", local=local.address,
                      there=remote.address, count=128)
    assert states == ["COMPLETED"] * 64 + ["FAILED"] * 64
    assert local.crc(0, 1000) == remote.crc(0, 1000)


def test_an_engine_sets_its_own_window(hosts, daemon, peer, cluster_key):
    nodes = [daemon(host=host, cluster_key=cluster_key) for host in hosts(2)]
    there = peer(nodes[1])
    resources = {"hixld.batching.window_us": 2000, "hixld.batching.max_requests": 8}
    here = peer(nodes[0], options={"GlobalResourceConfig": json.dumps(resources)})
    local, remote = here.memory(MIB), there.memory(MIB, seed=6)
    assert here.connect(there.engine) == SUCCESS
    states = here.run(FLOOD, remote=there.engine, op="READ", local=local.address,
                      there=remote.address, count=64)
    assert set(states) == {"COMPLETED"}
    assert status_of(nodes[0])["merges"] > 0
