"""Contract 1.5, 1.7 and 1.13: links, their signs of life, and connecting in the background."""

import time

import pytest
from harness.peer import (ALREADY_CONNECTED, FAILED, NOT_CONNECTED, PARAM_INVALID, RESOURCE_EXHAUSTED, SUCCESS,
                          TIMEOUT, Peer, engine_id, free_port)

MIB = 1 << 20
STATES = """
import time
def settle(peers, wanted, seconds=20):
    deadline = time.monotonic() + seconds
    states = []
    while time.monotonic() < deadline:
        states = [engine.get_async_connect_status(p)[1].name for p in peers]
        if all(s == wanted for s in states):
            break
    return states
"""


def disconnect(peer, remote):
    return peer.run("engine.disconnect(remote, 1000)", remote=remote)


def test_1_7_links_are_directional(two_peers):
    here, there = two_peers
    assert here.connect(there.engine) == SUCCESS
    assert there.connect(here.engine) == SUCCESS, "ours does not count as theirs"
    assert disconnect(here, there.engine) == SUCCESS
    assert disconnect(there, here.engine) == SUCCESS, "B18"


def test_1_7_of_20_concurrent_connects_one_succeeds(two_peers):
    here, there = two_peers
    assert here.run("""
import threading
statuses = []
threads = [threading.Thread(target=lambda: statuses.append(engine.connect(remote, 10000))) for _ in range(20)]
[t.start() for t in threads]
[t.join() for t in threads]
sorted(statuses)
""", remote=there.engine) == [SUCCESS] + [ALREADY_CONNECTED] * 19


def test_1_3_disconnect_checks_its_timeout_before_the_link(two_peers):
    here, there = two_peers
    assert here.run("[engine.disconnect(remote, ms) for ms in (0, -1, 1000)]", remote=there.engine) == \
        [PARAM_INVALID, PARAM_INVALID, NOT_CONNECTED]


def test_1_5_the_peer_goes_first_then_disconnect_succeeds_once(two_peers):
    """B14."""
    here, there = two_peers
    assert here.connect(there.engine) == SUCCESS
    there.run("engine.finalize()")
    assert disconnect(here, there.engine) == SUCCESS
    assert disconnect(here, there.engine) == NOT_CONNECTED


def test_1_7_a_dead_peer_is_noticed_by_the_next_operation_without_auto_connect(two_peers):
    here, there = two_peers
    local, remote = here.memory(4096), there.memory(4096)
    assert here.connect(there.engine) == SUCCESS
    there.worker.kill()
    piece = (local.address, remote.address, 4096)
    assert here.transfer(there.engine, "READ", [piece], timeout_ms=3000) in (FAILED, TIMEOUT)
    assert disconnect(here, there.engine) == SUCCESS
    assert disconnect(here, there.engine) == NOT_CONNECTED


def test_1_7_with_auto_connect_a_dead_peers_link_goes_by_itself(nodes_of_peers, peer):
    """B30: within one heartbeat; a program that makes no call is served, too."""
    here, there = peer(nodes_of_peers[0], options={"AutoConnect": "1"}), peer(nodes_of_peers[1])
    assert here.connect(there.engine) == SUCCESS
    there.worker.kill()

    def channels():
        with here.daemon.rpc() as rpc:
            return [c.state for e in rpc.admin("ListEngines").engines if e.engine_id == here.engine
                    for c in e.channels if c.initiator]

    deadline = time.monotonic() + 10
    while "open" in channels() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert "open" not in channels()
    assert disconnect(here, there.engine) == NOT_CONNECTED


def test_1_7_a_new_client_of_the_same_identity_replaces_a_dead_one_at_once(two_peers, worker):
    """B15."""
    here, there = two_peers
    assert here.connect(there.engine) == SUCCESS
    here.worker.kill()
    again = Peer(worker(here.daemon), here.engine, daemon=here.daemon)
    assert again.connect(there.engine) == SUCCESS


def test_1_7_a_silent_peer_is_dead_after_the_keepalive_timeout(hosts, daemon, cluster_key, peer):
    """Signs of life wait for answers: a daemon that stands still is one that is gone."""
    quick = {"tcp": {"keepalive_interval": "200ms", "keepalive_timeout": "1s"}}
    pair = hosts(2)
    nodes = [daemon(host=host, cluster_key=cluster_key, config=quick) for host in pair]
    here, there = peer(nodes[0], options={"AutoConnect": "1"}), peer(nodes[1])
    assert here.connect(there.engine) == SUCCESS
    pair[1].ip("link", "set", pair[1].interface, "down")
    deadline = time.monotonic() + 15
    status = SUCCESS
    with nodes[0].rpc() as rpc:
        while time.monotonic() < deadline:
            if not [link for link in rpc.admin("ListLinks").links if link.state == "up"]:
                break
            time.sleep(0.05)
    status = disconnect(here, there.engine)
    pair[1].ip("link", "set", pair[1].interface, "up")
    assert status == NOT_CONNECTED


def test_1_13_connecting_three_peers_in_the_background(daemon, peer):
    """B31."""
    node = daemon()
    here = peer(node, options={"GlobalResourceConfig":
                               '{"connect_pool.thread_num":2,"connect_pool.task_queue_capacity":8}'})
    others = [peer(node).engine for _ in range(3)]
    here.run(STATES)
    assert here.run("[engine.connect_async(p, 1000) for p in peers]", peers=others) == [SUCCESS] * 3
    assert here.run("settle(peers, 'CONNECTED')", peers=others) == ["CONNECTED"] * 3
    assert here.run("sorted(engine.get_all_async_connect_status()[1])") == sorted(others)
    assert here.run("[engine.disconnect_async(p, 1000) for p in peers]", peers=others) == [SUCCESS] * 3
    assert here.run("settle(peers, 'NOT_CONNECT')", peers=others) == ["NOT_CONNECT"] * 3
    assert here.run("engine.get_all_async_connect_status()") == [SUCCESS, {}]


def test_1_13_a_dead_peer_ends_as_connect_failed(daemon, peer):
    """B32, B33."""
    here = peer(daemon())
    dead = f"127.0.0.1:{free_port()}"
    here.run(STATES)
    assert here.run("engine.get_async_connect_status(p)[1].name", p=dead) == "NOT_CONNECT"
    assert here.run("engine.connect_async(p, 1000)", p=dead) == SUCCESS
    assert here.run("settle([p], 'CONNECT_FAILED')", p=dead) == ["CONNECT_FAILED"]
    assert here.run("engine.disconnect_async(p, 1000)", p=dead) == SUCCESS
    assert here.run("settle([p], 'NOT_CONNECT')", p=dead) == ["NOT_CONNECT"]


def test_1_13_already_connected_counts_as_connected(two_peers):
    here, there = two_peers
    here.run(STATES)
    assert here.connect(there.engine) == SUCCESS
    assert here.run("[engine.get_all_async_connect_status(), engine.connect_async(p, 1000)]", p=there.engine) == \
        [[SUCCESS, {}], SUCCESS], "a synchronous connect does not change the table"
    assert here.run("settle([p], 'CONNECTED')", p=there.engine) == ["CONNECTED"]


def test_1_13_bad_timeouts_and_a_full_queue(daemon, peer):
    here = peer(daemon(), options={"GlobalResourceConfig":
                                   '{"connect_pool.thread_num":1,"connect_pool.task_queue_capacity":2}'})
    assert here.run("[engine.connect_async('127.0.0.1:1', 0), engine.disconnect_async('127.0.0.1:1', -1)]") == \
        [PARAM_INVALID] * 2
    # Two peers that accept and never answer keep the only thread busy.
    statuses = here.run("""
import socket
silent = socket.socket()
silent.bind(('127.0.0.1', 0))
silent.listen(8)
name = '127.0.0.1:%d' % silent.getsockname()[1]
[engine.connect_async(name, 2000)] + [engine.connect_async(f'127.0.0.1:{9 + i}', 2000) for i in range(8)]
""", timeout=60)
    assert RESOURCE_EXHAUSTED in statuses and statuses[0] == SUCCESS


def test_1_13_after_finalize_failed(daemon, peer):
    here = peer(daemon())
    assert here.run("engine.finalize()\n[engine.connect_async('127.0.0.1:1'), engine.get_all_async_connect_status()]") \
        == [FAILED, [FAILED, {}]]


@pytest.mark.parametrize("count", [20])
def test_1_5_an_address_may_be_used_again_right_after_its_owner_finalised(daemon, worker, count):
    """B5."""
    client = worker(daemon())
    assert client.run("""
statuses = []
for _ in range(count):
    e = hixl.Hixl()
    statuses.append(e.initialize(name))
    e.finalize()
sorted(set(statuses))
""", name=f"127.0.0.1:{free_port()}", count=count) == [SUCCESS]


def test_b10_deregistering_with_an_open_link(nodes_of_peers, peer):
    hixl_engine = {"LocalCommRes": '{"version":"1.3"}'}
    here, there = peer(nodes_of_peers[0], options=hixl_engine), peer(nodes_of_peers[1])
    mine, theirs = here.memory(MIB), there.memory(MIB)
    assert here.connect(there.engine) == SUCCESS
    code = "engine.deregister_mem(handle)"
    assert here.run(code, handle=mine.handle) == FAILED
    assert there.run(code, handle=theirs.handle) == SUCCESS, "a server may"
    assert disconnect(here, there.engine) == SUCCESS
    assert here.run(code, handle=mine.handle) == SUCCESS


def test_1_4_identity_is_the_literal_string(daemon, peer):
    node = daemon()
    here = peer(node)
    for wrong in ("127.0.0.1", "localhost:26000", "127.0.0.1:70000", "::1:26000", "", "127.0.0.1:0"):
        assert here.connect(wrong, 1000) == PARAM_INVALID, wrong
    assert here.connect(here.engine, 1000) == PARAM_INVALID, "B16"
    assert here.connect(engine_id(node), 1000) == FAILED, "B12: nobody listens"
