"""Contract 1.10, notifies: one case that must work and one that must not, per rule."""

import pytest
from harness.peer import (NOT_CONNECTED, PARAM_INVALID, RESOURCE_EXHAUSTED, SUCCESS, TIMEOUT, engine_id,
                          free_port)

KIB, MIB = 1 << 10, 1 << 20
SEND = "engine.send_notify(remote, hixl.NotifyDesc(name, text), ms)"
FETCH = """
status, arrived = engine.get_notifies()
[status, [[n.name, n.notify_msg] for n in arrived]]
"""


def send(peer, remote, name="n", text="m", ms=5000):
    return peer.run(SEND, remote=remote, name=name, text=text, ms=ms)


def fetch(peer):
    status, arrived = peer.run(FETCH)
    assert status == SUCCESS
    return arrived


def another(peer, node):
    """One more client on a node whose own address may be taken already."""
    return peer(node, engine_id(node, 26077) if node.host else None)


def test_1_10_a_notify_goes_from_the_links_initiator_to_the_peer(two_peers):
    here, there = two_peers
    assert here.connect(there.engine) == SUCCESS
    assert send(here, there.engine, "name", "text") == SUCCESS
    assert fetch(there) == [["name", "text"]]
    assert send(there, here.engine) == NOT_CONNECTED, "the other direction is another link"
    assert fetch(here) == []


def test_1_10_a_notify_never_connects_not_even_with_auto_connect(daemon, peer):
    node = daemon()
    here, there = peer(node, options={"AutoConnect": "1"}), peer(node)
    assert send(here, there.engine) == NOT_CONNECTED
    assert here.run("engine.disconnect(remote)", remote=there.engine) == NOT_CONNECTED
    assert here.connect(there.engine) == SUCCESS
    assert send(here, there.engine) == SUCCESS


def test_1_10_limits_are_1024_bytes_each_and_empty_is_legal(two_peers):
    here, there = two_peers
    assert send(here, there.engine, "x" * 1025, ms=-1) == PARAM_INVALID
    assert send(here, there.engine, ms=0) == PARAM_INVALID
    assert send(here, there.engine, "", "x" * 1025) == PARAM_INVALID
    assert "1025" in here.run("hixl.last_error()")
    assert send(here, there.engine, "x" * 1024, "y" * 1024) == NOT_CONNECTED, "checked before the link"
    assert here.connect(there.engine) == SUCCESS
    assert send(here, there.engine, "x" * 1024, "y" * 1024) == SUCCESS
    assert send(here, there.engine, "", "") == SUCCESS
    assert send(here, there.engine, "é" * 512, "") == SUCCESS
    assert send(here, there.engine, "é" * 513, "") == PARAM_INVALID, "bytes count, not characters"
    assert fetch(there) == [["x" * 1024, "y" * 1024], ["", ""], ["é" * 512, ""]]


def test_1_10_one_millisecond_is_over_before_anything_is_sent(two_peers):
    here, there = two_peers
    assert here.connect(there.engine) == SUCCESS
    assert [send(here, there.engine, ms=1) for _ in range(5)] == [TIMEOUT] * 5
    assert fetch(there) == []
    assert send(here, there.engine, ms=200) == SUCCESS
    assert len(fetch(there)) == 1


def test_1_10_the_4097th_of_a_link_is_resource_exhausted_and_only_that_links(two_peers, peer):
    here, there = two_peers
    other = another(peer, here.daemon)
    assert here.connect(there.engine) == SUCCESS
    assert other.connect(there.engine) == SUCCESS
    statuses = here.run("[engine.send_notify(remote, hixl.NotifyDesc(str(i), '')) for i in range(4097)]",
                        timeout=120, remote=there.engine)
    assert statuses == [SUCCESS] * 4096 + [RESOURCE_EXHAUSTED]
    assert "limits.max_notifies_per_channel" in here.run("hixl.last_error()")
    assert send(other, there.engine, "other") == SUCCESS
    arrived = [name for name, _ in fetch(there)]
    assert [name for name in arrived if name != "other"] == [str(i) for i in range(4096)]
    assert "other" in arrived
    assert send(here, there.engine, "again") == SUCCESS
    assert fetch(there) == [["again", "m"]]


def test_1_10_a_full_queue_of_long_notifies_is_fetched_by_one_call(two_peers):
    here, there = two_peers
    assert here.connect(there.engine) == SUCCESS
    statuses = here.run("""
[engine.send_notify(remote, hixl.NotifyDesc(str(i).rjust(1024, 'n'), 'm' * 1024)) for i in range(4096)]
""", timeout=120, remote=there.engine)
    assert statuses == [SUCCESS] * 4096
    names = there.run("status, arrived = engine.get_notifies()\n[int(n.name.strip('n')) for n in arrived]")
    assert names == list(range(4096))


def test_1_10_fetching_returns_and_clears(two_peers):
    here, there = two_peers
    assert fetch(there) == []
    assert here.connect(there.engine) == SUCCESS
    for i in range(5):  # B27
        assert send(here, there.engine, f"notify {i}") == SUCCESS
    assert [name for name, _ in fetch(there)] == [f"notify {i}" for i in range(5)]
    assert fetch(there) == []


def test_1_10_two_senders_ten_notifies_arrive_each_in_order(daemon, peer):
    node = daemon()
    senders, there = [peer(node), peer(node)], peer(node)
    for number, sender in enumerate(senders):
        assert sender.connect(there.engine) == SUCCESS
        sender.worker.start("[engine.send_notify(remote, hixl.NotifyDesc(me, str(i))) for i in range(5)]",
                            remote=there.engine, me=str(number))
    assert [sender.worker.result() for sender in senders] == [[SUCCESS] * 5] * 2
    arrived = fetch(there)
    for number in range(2):
        assert [text for name, text in arrived if name == str(number)] == list("01234")


def test_1_10_notifies_of_a_link_that_was_closed_are_still_there(two_peers):
    here, there = two_peers
    assert here.connect(there.engine) == SUCCESS
    assert send(here, there.engine, "before") == SUCCESS
    assert here.run("engine.disconnect(remote)", remote=there.engine) == SUCCESS
    assert send(here, there.engine, "after") == NOT_CONNECTED
    assert fetch(there) == [["before", "m"]]


@pytest.mark.parametrize("way", ["sync", "async"])
def test_1_10_data_of_earlier_transfers_is_there_when_the_notify_is(two_peers, way):
    """The receiver checks a sum the moment that it is told; equal every time."""
    here, there = two_peers
    size, rounds = 256 * KIB, 200
    local, remote = here.memory(size), there.memory(size)
    assert here.connect(there.engine) == SUCCESS
    there.worker.start("""
import time
wrong, seen = 0, 0
deadline = time.monotonic() + 60
while seen < rounds and time.monotonic() < deadline:
    for notify in engine.get_notifies()[1]:
        offset, length, crc_sent = map(int, notify.notify_msg.split())
        seen += 1
        wrong += zlib.crc32(buffers[memory][1][offset:offset + length]) != crc_sent
[seen, wrong]
""", rounds=rounds, memory=remote.name)
    statuses = here.run("""
import os
piece = size // rounds
outcomes = set()
for i in range(rounds):
    view = buffers[memory][1]
    view[i * piece:(i + 1) * piece] = os.urandom(piece)
    desc = [hixl.TransferOpDesc(local + i * piece, target + i * piece, piece)]
    if way == 'sync':
        outcomes.add(engine.transfer_sync(remote, hixl.TransferOp.WRITE, desc, 10000))
    else:
        status, request = engine.transfer_async(remote, hixl.TransferOp.WRITE, desc)
        state = hixl.TransferStatus.WAITING
        while status == 0 and state == hixl.TransferStatus.WAITING:
            status, state = engine.get_transfer_status(request)
        outcomes.add(0 if state == hixl.TransferStatus.COMPLETED else 1)
    sums = '%d %d %d' % (i * piece, piece, zlib.crc32(view[i * piece:(i + 1) * piece]))
    outcomes.add(engine.send_notify(remote, hixl.NotifyDesc('written', sums), 10000))
sorted(outcomes)
""", size=size, rounds=rounds, memory=local.name, local=local.address, target=remote.address,
                        remote=there.engine, way=way)
    assert statuses == [SUCCESS]
    assert there.worker.result(90) == [rounds, 0]


def test_d6_a_notify_takes_less_than_100_ms(two_peers):
    here, there = two_peers
    assert here.connect(there.engine) == SUCCESS
    times = here.run("""
import time
times = []
for _ in range(50):
    start = time.monotonic()
    assert engine.send_notify(remote, hixl.NotifyDesc('a', 'b')) == 0
    times.append(time.monotonic() - start)
sorted(times)
""", remote=there.engine)
    assert times[len(times) // 2] < 0.1


def test_two_engines_of_one_process_notify_each_other(daemon, peer):
    here = peer(daemon())
    arrived = here.run("""
other = hixl.Hixl()
statuses = [other.initialize(name), engine.connect(name), other.connect(mine),
            engine.send_notify(name, hixl.NotifyDesc('to', 'other')),
            other.send_notify(mine, hixl.NotifyDesc('to', 'first'))]
got = [[n.notify_msg for n in e.get_notifies()[1]] for e in (other, engine)]
other.finalize()
[statuses, got]
""", name=f"127.0.0.1:{free_port()}", mine=here.engine)
    assert arrived == [[SUCCESS] * 5, [["other"], ["first"]]]


def test_16_threads_send_and_fetch_at_once_and_nothing_is_lost(daemon, peer):
    node = daemon()
    here, there = peer(node), peer(node)
    assert here.connect(there.engine) == SUCCESS
    there.worker.start("""
import threading, time
lock, names = threading.Lock(), []
deadline = time.monotonic() + 60
def fetch():
    while len(names) < 1600 and time.monotonic() < deadline:
        arrived = engine.get_notifies()[1]
        with lock:
            names.extend(n.name for n in arrived)
threads = [threading.Thread(target=fetch) for _ in range(4)]
[t.start() for t in threads]
[t.join() for t in threads]
[len(names), len(set(names))]
""")
    sent = here.run("""
import threading
statuses = []
def send(number):
    for i in range(100):
        statuses.append(engine.send_notify(remote, hixl.NotifyDesc(f'{number}.{i}', '')))
threads = [threading.Thread(target=send, args=(n,)) for n in range(16)]
[t.start() for t in threads]
[t.join() for t in threads]
[len(statuses), set(statuses) == {0}]
""", timeout=90, remote=there.engine)
    assert sent == [1600, True]
    assert there.worker.result(90) == [1600, 1600]


def test_2_3_an_embedded_nul_truncates(daemon, peer):
    node = daemon()
    here, there = peer(node), peer(node)
    assert here.connect(there.engine) == SUCCESS
    assert send(here, there.engine, "a\x00b", "c\x00") == SUCCESS
    assert fetch(there) == [["a", "c"]]
