"""A client that dies hurts only itself."""

import os
import time
from pathlib import Path

import pytest
from harness.peer import FAILED, NOT_CONNECTED, PARAM_INVALID, SUCCESS, TIMEOUT
from harness.wait import until

MIB = 1 << 20
ENDED = (FAILED, TIMEOUT, NOT_CONNECTED, PARAM_INVALID)


def sessions(node):
    with node.rpc() as rpc:
        return rpc.admin("ListSessions").sessions


def status(node):
    with node.rpc() as rpc:
        return rpc.admin("GetStatus")


@pytest.mark.parametrize("victim", ["initiator", "target"])
def test_a_client_killed_in_the_middle_of_transfers_is_reaped(two_peers, peer, victim):
    here, there = two_peers
    bystander, partner = peer(here.daemon, **own_port(here, 26031)), peer(there.daemon, **own_port(there, 26032))
    size = 32 * MIB
    local, remote = here.memory(size), there.memory(size, seed=1)
    mine, theirs = bystander.memory(MIB), partner.memory(MIB, seed=2)
    assert here.connect(there.engine) == SUCCESS
    assert bystander.connect(partner.engine) == SUCCESS
    here.worker.start("""
statuses = []
for _ in range(400):
    statuses.append(engine.transfer_sync(remote, hixl.TransferOp.READ, descriptors(pieces), 5000))
    if statuses[-1] != 0:
        break
statuses
""", remote=there.engine, pieces=[(local.address, remote.address, size)])
    assert until(lambda: bytes_moved(here.daemon) > size), "the transfers have begun"
    dying = here if victim == "initiator" else there
    dying.worker.kill()
    if victim == "target":
        assert here.worker.result(60)[-1] in ENDED
    pid = dying.worker.process.pid
    assert until(lambda: pid not in [s.pid for s in sessions(dying.daemon)])
    piece = (mine.address, theirs.address, MIB)
    assert bystander.transfer(partner.engine, "READ", [piece]) == SUCCESS
    assert mine.crc() == theirs.crc()


def own_port(peer_on_node, port):
    """An engine id of its own on a node with its own address; any free one on loopback."""
    host = peer_on_node.daemon.host
    return {"engine": f"{host.address}:{port}"} if host else {}


def bytes_moved(node):
    state = status(node)
    return state.bytes_read + state.bytes_written


def test_what_a_killed_client_owned_is_released(daemon, peer):
    node = daemon()
    peer(node).memory(MIB)  # what a first client makes the daemon set up stays
    maps = lambda: len(Path(f"/proc/{node.pid}/maps").read_text().splitlines())  # noqa: E731
    descriptors = lambda: len(os.listdir(f"/proc/{node.pid}/fd"))  # noqa: E731
    before = None
    for round_number in range(6):
        client = peer(node)
        client.memory(96 * MIB)
        client.memory(MIB, "plain")
        pid = client.worker.process.pid
        client.worker.kill()
        assert until(lambda: pid not in [s.pid for s in sessions(node)])
        assert until(lambda: status(node).registered_bytes == MIB)
        now = maps(), descriptors()
        before = before or now
        # gRPC keeps a few descriptors of its own; what must not happen is growth per client.
        assert now[0] <= before[0] + 4 and now[1] <= before[1] + 4, f"round {round_number}"


def test_the_engine_id_of_a_killed_client_is_free_at_once(daemon, peer):
    node = daemon()
    first = peer(node)
    pid = first.worker.process.pid
    first.worker.kill()
    assert until(lambda: pid not in [s.pid for s in sessions(node)])
    again = peer(node, engine=first.engine)
    remote = again.memory(MIB, seed=3)
    here = peer(node)
    local = here.memory(MIB)
    assert here.connect(again.engine) == SUCCESS
    assert here.transfer(again.engine, "READ", [(local.address, remote.address, MIB)]) == SUCCESS


def test_disconnecting_from_a_dead_peer_succeeds_once(two_peers):
    here, there = two_peers
    assert here.connect(there.engine) == SUCCESS
    there.worker.kill()
    disconnect = "engine.disconnect(remote)"
    assert here.run(disconnect, remote=there.engine) in (SUCCESS, NOT_CONNECTED)
    assert here.run(disconnect, remote=there.engine) == NOT_CONNECTED


def test_a_transfer_to_a_dead_peer_ends_within_its_timeout(two_peers):
    here, there = two_peers
    local, remote = here.memory(MIB), there.memory(MIB)
    assert here.connect(there.engine) == SUCCESS
    there.worker.kill()
    start = time.monotonic()
    for _ in range(50):
        piece = (local.address, remote.address, MIB)
        result = here.transfer(there.engine, "READ", [piece], timeout_ms=3000)
        if result != SUCCESS:  # the first ones may still find the memory mapped
            break
    assert result in ENDED
    assert time.monotonic() - start < 15
