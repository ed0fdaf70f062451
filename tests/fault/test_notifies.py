"""Notifies when their sender, their receiver or a daemon dies, and when nobody fetches them."""

import os
import signal
import time
from pathlib import Path

from harness.peer import (FAILED, NOT_CONNECTED, RESOURCE_EXHAUSTED, SUCCESS, TIMEOUT, Peer)
from harness.wait import until

SEND = "engine.send_notify(remote, hixl.NotifyDesc(name, 'm'), ms)"
NAMES = "[n.name for n in engine.get_notifies()[1]]"
QUICK_KEEPALIVE = {"tcp": {"keepalive_interval": "300ms", "keepalive_timeout": "1500ms"}}


def send(peer, remote, name="n", ms=5000):
    return peer.run(SEND, remote=remote, name=name, ms=ms)


def queued(node):
    with node.rpc() as rpc:
        return sum(engine.notifies_queued for engine in rpc.admin("ListEngines").engines)


def test_a_receiver_killed_with_a_full_queue_takes_it_along(two_peers, worker):
    here, there = two_peers
    assert here.connect(there.engine) == SUCCESS
    statuses = here.run("[engine.send_notify(remote, hixl.NotifyDesc(str(i), '')) for i in range(4097)]",
                        timeout=120, remote=there.engine)
    assert statuses == [SUCCESS] * 4096 + [RESOURCE_EXHAUSTED]
    assert queued(there.daemon) == 4096
    there.worker.kill()
    assert until(lambda: queued(there.daemon) == 0)
    start = time.monotonic()
    assert send(here, there.engine, ms=2000) in (FAILED, NOT_CONNECTED, TIMEOUT)
    assert time.monotonic() - start < 10
    successor = Peer(worker(there.daemon), there.engine, daemon=there.daemon)
    assert successor.run(NAMES) == [], "a successor does not get its predecessor's notifies"
    assert send(here, there.engine, "fresh") == SUCCESS
    assert successor.run(NAMES) == ["fresh"]


def test_what_a_killed_sender_had_sent_arrives(two_peers):
    here, there = two_peers
    assert here.connect(there.engine) == SUCCESS
    assert [send(here, there.engine, str(i)) for i in range(10)] == [SUCCESS] * 10
    here.worker.kill()
    assert there.run(NAMES) == [str(i) for i in range(10)]


def test_a_slow_receiver_slows_its_sender_and_loses_nothing(daemon, peer):
    node = daemon(config={"limits": {"max_notifies_per_channel": 16}})
    here, there = peer(node), peer(node)
    assert here.connect(there.engine) == SUCCESS
    assert [send(here, there.engine, str(i)) for i in range(17)] == [SUCCESS] * 16 + [RESOURCE_EXHAUSTED]
    here.worker.start("""
import time
refused = 0
for i in range(16, 1000):
    status = hixl.RESOURCE_EXHAUSTED
    while status == hixl.RESOURCE_EXHAUSTED:
        status = engine.send_notify(remote, hixl.NotifyDesc(str(i), ''))
        refused += status == hixl.RESOURCE_EXHAUSTED
    assert status == 0, status
refused
""", remote=there.engine)
    assert there.run("""
import time
names = []
deadline = time.monotonic() + 100
while len(names) < 1000 and time.monotonic() < deadline:
    names += [int(n.name) for n in engine.get_notifies()[1]]
    time.sleep(0.005)  # what makes it slow
names == list(range(1000))
""", timeout=120)
    assert here.worker.result(60) > 0, "the sender had to try again"


def test_a_receiver_that_never_fetches_keeps_the_daemon_bounded(daemon, peer):
    node = daemon(config={"limits": {"max_notify_bytes_per_engine": "1MiB"}})
    there = peer(node)
    senders = [peer(node) for _ in range(3)]
    outcomes = set()
    for sender in senders:
        assert sender.connect(there.engine) == SUCCESS
        outcomes |= set(sender.run("""
list({engine.send_notify(remote, hixl.NotifyDesc('n' * 1024, 'm' * 1024)) for _ in range(400)})
""", timeout=60, remote=there.engine))
    assert outcomes == {SUCCESS, RESOURCE_EXHAUSTED}
    assert "limits.max_notify_bytes_per_engine" in senders[-1].run("hixl.last_error()")
    assert queued(node) == (1 << 20) // (2 * 1024 + 128)


def test_a_killed_daemon_of_the_receiver_is_an_error_within_the_timeout(hosts, daemon, cluster_key, peer):
    nodes = [daemon(host=host, cluster_key=cluster_key, config=QUICK_KEEPALIVE) for host in hosts(2)]
    here, there = peer(nodes[0]), peer(nodes[1])
    assert here.connect(there.engine) == SUCCESS
    assert send(here, there.engine) == SUCCESS
    nodes[1].kill()
    start = time.monotonic()
    assert send(here, there.engine, ms=3000) in (FAILED, TIMEOUT)
    assert time.monotonic() - start < 5
    nodes[1].start()
    assert until(lambda: send(here, there.engine, "again", ms=1000) == SUCCESS)
    assert "again" in there.run(NAMES)


def stands_still(pid):
    """Whether every thread of the process has come to its stop."""
    states = [path.read_text().rsplit(") ", 1)[1][0] for path in Path(f"/proc/{pid}/task").glob("*/stat")]
    return set(states) == {"T"}


def test_a_silent_peer_is_timeout_at_the_deadline(hosts, daemon, cluster_key, peer):
    nodes = [daemon(host=host, cluster_key=cluster_key) for host in hosts(2)]
    here, there = peer(nodes[0]), peer(nodes[1])
    assert here.connect(there.engine) == SUCCESS
    os.kill(nodes[1].pid, signal.SIGSTOP)
    try:
        assert until(lambda: stands_still(nodes[1].pid))
        start = time.monotonic()
        assert send(here, there.engine, ms=1000) == TIMEOUT
        assert 0.9 < time.monotonic() - start < 2
    finally:
        os.kill(nodes[1].pid, signal.SIGCONT)
