"""A daemon that dies: its peers notice, fail what was under way, and go on."""

import time

from harness.peer import FAILED, NOT_CONNECTED, PARAM_INVALID, SUCCESS, TIMEOUT

MIB = 1 << 20
ENDED = (FAILED, TIMEOUT, NOT_CONNECTED, PARAM_INVALID)
QUICK_KEEPALIVE = {"tcp": {"keepalive_interval": "300ms", "keepalive_timeout": "1500ms"}}


def three_nodes(hosts, daemon, cluster_key):
    return [daemon(host=host, cluster_key=cluster_key, config=QUICK_KEEPALIVE) for host in hosts(3)]


def test_64_transfers_end_when_the_peers_daemon_is_killed(hosts, daemon, cluster_key, peer):
    nodes = three_nodes(hosts, daemon, cluster_key)
    here, there, third = (peer(node) for node in nodes)
    size = 8 * MIB
    local, remote = here.memory(size), there.memory(size)
    safe = third.memory(MIB, seed=1)
    assert here.connect(there.engine) == SUCCESS
    assert here.connect(third.engine) == SUCCESS
    here.run("""
requests = [engine.transfer_async(remote, hixl.TransferOp.READ, descriptors(pieces)) for _ in range(64)]
""", remote=there.engine, pieces=[(local.address, remote.address, size)])
    nodes[1].kill()
    states = here.run("""
import time
deadline = time.monotonic() + 20
states = {}
while len(states) < len(requests) and time.monotonic() < deadline:
    for status, request in requests:
        if status == 0 and request not in states:
            code, state = engine.get_transfer_status(request)
            if state != hixl.TransferStatus.WAITING:
                states[request] = state.name
        elif status != 0:
            states[request, id(status)] = 'REFUSED'
sorted(set(states.values())), len(states)
""", timeout=60)
    assert set(states[0]) <= {"COMPLETED", "FAILED", "TIMEOUT", "REFUSED"}
    assert states[1] == 64, "none stays pending"
    piece = (local.address, safe.address, MIB)
    assert here.transfer(third.engine, "READ", [piece]) == SUCCESS
    assert local.crc(0, MIB) == safe.crc()


def test_a_restarted_peer_is_reached_again(hosts, daemon, cluster_key, peer):
    pair = hosts(2)
    nodes = [daemon(host=host, cluster_key=cluster_key, config=QUICK_KEEPALIVE) for host in pair]
    here, there = peer(nodes[0], options={"BufferPool": "0:0"}), peer(nodes[1])
    local, remote = here.memory(MIB), there.memory(MIB, seed=1)
    piece = (local.address, remote.address, MIB)
    assert here.connect(there.engine) == SUCCESS
    assert here.transfer(there.engine, "READ", [piece]) == SUCCESS
    nodes[1].kill()
    there.worker.kill()
    assert here.transfer(there.engine, "READ", [piece], timeout_ms=4000) in ENDED
    nodes[1].start()
    nodes[1].may_be_gone = False
    reborn = peer(nodes[1], engine=there.engine)
    fresh = reborn.memory(4 * MIB, seed=2)
    here.run("engine.disconnect(remote)", remote=there.engine)
    assert here.connect(reborn.engine) == SUCCESS
    old = here.transfer(reborn.engine, "READ", [piece])
    assert old in (PARAM_INVALID, FAILED) or abs(fresh.address - remote.address) < 4 * MIB
    if old != SUCCESS:
        here.run("engine.disconnect(remote)", remote=reborn.engine)
        assert here.connect(reborn.engine) == SUCCESS
    assert here.transfer(reborn.engine, "READ", [(local.address, fresh.address, MIB)]) == SUCCESS
    assert local.crc() == fresh.crc(0, MIB)


def test_connect_to_a_host_that_answers_nothing_times_out(hosts, daemon, cluster_key, peer):
    pair = hosts(2)
    here = peer(daemon(host=pair[0], cluster_key=cluster_key))
    pair[1].ip("link", "set", "data0", "down")
    start = time.monotonic()
    status = here.connect(f"{pair[1].address}:26000", timeout_ms=1000)
    assert status in (TIMEOUT, FAILED)
    assert time.monotonic() - start < 3


def test_an_engine_that_listens_later_is_reached_without_any_reset(two_nodes, peer):
    here = peer(two_nodes[0])
    address = f"{two_nodes[1].host.address}:26000"
    assert here.connect(address, timeout_ms=1000) in (FAILED, TIMEOUT)
    there = peer(two_nodes[1], engine=address)
    local, remote = here.memory(MIB), there.memory(MIB, seed=1)
    assert here.connect(address) == SUCCESS
    assert here.transfer(address, "READ", [(local.address, remote.address, MIB)]) == SUCCESS
    assert local.crc() == remote.crc()


def test_a_network_that_drops_everything_ends_transfers_within_the_keepalive(hosts, daemon, cluster_key,
                                                                           peer):
    pair = hosts(2)
    nodes = [daemon(host=host, cluster_key=cluster_key, config=QUICK_KEEPALIVE) for host in pair]
    here, there = peer(nodes[0]), peer(nodes[1])
    local, remote = here.memory(MIB), there.memory(MIB, seed=1)
    piece = (local.address, remote.address, MIB)
    assert here.connect(there.engine) == SUCCESS
    assert here.transfer(there.engine, "READ", [piece]) == SUCCESS
    pair[1].ip("link", "set", "data0", "down")
    start = time.monotonic()
    assert here.transfer(there.engine, "READ", [piece], timeout_ms=30_000) in ENDED
    assert time.monotonic() - start < 10, "the keep-alive ends it, not the transfer's own timeout"
    pair[1].ip("link", "set", "data0", "up")
    here.run("engine.disconnect(remote)", remote=there.engine)
    assert here.connect(there.engine) == SUCCESS
    assert here.transfer(there.engine, "READ", [piece]) == SUCCESS
    assert local.crc() == remote.crc()
