"""Contract 1.7, 1.12 and 1.13: links, those that transfers make, and those made in the background."""

import pytest
from harness.peer import (ALREADY_CONNECTED, FAILED, NOT_CONNECTED, PARAM_INVALID, RESOURCE_EXHAUSTED,
                          SUCCESS, TIMEOUT)
from harness.worker import Worker

AUTO = {"AutoConnect": "1"}


# --- 1.7 -------------------------------------------------------------------------------------------

def test_rule_1_7_directional_ok(run):
    assert run("""
a, na = listening()
b, nb = listening()
[a.connect(nb), b.connect(na), a.disconnect(nb), b.disconnect(na)]
""") == [SUCCESS] * 4


def test_rule_1_7_directional_bad(run):
    # Who was connected to has no link back.
    assert run("""
a, na = listening()
b, nb = listening()
x = memory(16)
[a.connect(nb), b.transfer_sync(na, READ, [piece(x, x, 16)]), b.disconnect(na)]
""") == [SUCCESS, NOT_CONNECTED, NOT_CONNECTED]


def test_rule_1_7_one_of_twenty_ok(run):
    assert sorted(run("""
e = engine()
other, name = listening()
outcomes, start = [], threading.Barrier(20)
def work():
    start.wait()
    outcomes.append(e.connect(name, 5000))
threads = [threading.Thread(target=work) for _ in range(20)]
for t in threads: t.start()
for t in threads: t.join()
outcomes
""")) == [SUCCESS] + [ALREADY_CONNECTED] * 19


def test_rule_1_7_connect_refused_bad(run):
    # Fast, and not a TIMEOUT.
    assert run("""
e = engine()
name = free_name()
before = time.monotonic()
[e.connect(name, 60000), time.monotonic() - before < 20]
""") == [FAILED, True]


def test_rule_1_7_connect_timeout_bad(run):
    assert run("""
silent = socket.socket()
silent.bind(('127.0.0.1', 0))
silent.listen(1)
engine().connect('127.0.0.1:%d' % silent.getsockname()[1], 200)
""") == TIMEOUT
    text = run("hixl.last_error()")
    assert "HIXL_001002" in text and "advice" in text


def test_rule_1_7_disconnect_after_server_death_ok(lab, run):
    server = Worker(lab.node)
    name = server.run("""
import socket
with socket.socket() as probe:
    probe.bind(('127.0.0.1', 0))
    name = '127.0.0.1:%d' % probe.getsockname()[1]
e = hixl.Hixl()
assert e.initialize(name) == 0
name
""")
    assert run("e = engine()\ne.connect(name)", name=name) == SUCCESS
    server.kill()
    assert run("[e.disconnect(name), e.disconnect(name)]") == [SUCCESS, NOT_CONNECTED]


def test_rule_1_7_stale_channel_is_replaced_ok(lab, run):
    # A client is killed without a disconnect; one with the same identity connects at once.
    name = run("there, name = listening()\nname")
    mine = run("free_name()")
    for _ in range(3):
        client = Worker(lab.node)
        assert client.run("e = hixl.Hixl()\n[e.initialize(mine), e.connect(peer, 5000)]", mine=mine,
                          peer=name) == [SUCCESS, SUCCESS]
        client.kill()


# --- 1.12 ------------------------------------------------------------------------------------------

PAIR = """
here = engine({'AutoConnect': '1'})
there, name = listening()
local, remote = memory(256), memory(256, 6)
register(here, local, 256)
register(there, remote, 256)
"""


def test_rule_1_12_auto_connect_ok(run):
    assert run(PAIR + """
[here.transfer_sync(name, READ, [piece(local, remote, 256)]), content(local, 256) == bytes([6]) * 256,
 here.connect(name), here.disconnect(name), here.disconnect(name)]
""") == [SUCCESS, True, ALREADY_CONNECTED, SUCCESS, NOT_CONNECTED]


def test_rule_1_12_auto_connect_async_ok(run):
    assert run(PAIR + """
status, request = here.transfer_async(name, READ, [piece(local, remote, 256)])
[status, *ended(here, request)]
""") == [SUCCESS, SUCCESS, "COMPLETED"]


def test_rule_1_12_explicit_connect_stays_legal_ok(run):
    assert run(PAIR + "[here.connect(name), here.transfer_sync(name, READ, [piece(local, remote, 256)])]") == [
        SUCCESS, SUCCESS]


def test_rule_1_12_auto_connect_bad(run):
    # The connect's own error comes back.
    assert run(PAIR + """
[here.transfer_sync(free_name(), READ, [piece(local, remote, 256)], 2000),
 here.transfer_sync('nonsense', READ, [piece(local, remote, 256)], 2000),
 here.transfer_async(free_name(), READ, [piece(local, remote, 256)])]
""") == [FAILED, PARAM_INVALID, [FAILED, 0]]


@pytest.mark.parametrize("options", [{}, {"AutoConnect": "0"}])
def test_rule_1_12_off_bad(run, options):
    assert run("""
here = engine(options)
there, name = listening()
x = memory(16)
[here.transfer_sync(name, READ, [piece(x, x, 16)]), here.transfer_async(name, READ, [piece(x, x, 16)])]
""", options=options) == [NOT_CONNECTED, [NOT_CONNECTED, 0]]


def test_rule_1_12_error_disconnects_bad(run):
    # A failed transfer drops the link, and the next one makes it again.
    assert run(PAIR + """
register(there, 1234, 10)
first = here.transfer_sync(name, READ, [piece(local, remote, 16)])
failed = here.transfer_sync(name, READ, [piece(local, 1234, 10)], 5000)
[first, failed != 0, here.disconnect(name), here.transfer_sync(name, READ, [piece(local, remote, 16)])]
""") == [SUCCESS, True, NOT_CONNECTED, SUCCESS]


# --- 1.13 ------------------------------------------------------------------------------------------

def test_rule_1_13_async_connect_ok(run):
    assert run("""
e = engine(resources(connect_pool__thread_num=2, connect_pool__task_queue_capacity=8))
peers = [listening()[1] for _ in range(3)]
submitted = [e.connect_async(p, 5000) for p in peers]
def states():
    status, all_states = e.get_all_async_connect_status()
    return {name: state.name for name, state in all_states.items()}
connected = until(lambda: states() == {p: 'CONNECTED' for p in peers})
known = [e.connect(p) for p in peers]
submitted += [e.disconnect_async(p, 5000) for p in peers]
gone = until(lambda: states() == {})
[submitted, connected, known, gone, [e.disconnect(p) for p in peers]]
""") == [[SUCCESS] * 6, True, [ALREADY_CONNECTED] * 3, True, [NOT_CONNECTED] * 3]


def test_rule_1_13_async_connect_bad(run):
    assert run("""
e = engine()
name = free_name()
e.connect_async(name, 2000)
failed = until(lambda: e.get_async_connect_status(name)[1] == hixl.CONNECT_FAILED)
listed = [state.name for state in e.get_all_async_connect_status()[1].values()]
e.disconnect_async(name)
gone = until(lambda: e.get_async_connect_status(name)[1] == hixl.NOT_CONNECT)
[failed, listed, gone, e.get_all_async_connect_status()]
""") == [True, ["CONNECT_FAILED"], True, [SUCCESS, {}]]


def test_rule_1_13_already_connected_is_connected_ok(run):
    assert run("""
e = engine()
other, name = listening()
e.connect(name)
e.connect_async(name)
until(lambda: e.get_async_connect_status(name)[1] == hixl.CONNECTED)
""") is True


def test_rule_1_13_sync_calls_leave_the_table_alone_ok(run):
    assert run("""
e = engine()
other, name = listening()
before = (e.connect(name), e.get_async_connect_status(name)[1].name)
e.connect_async(name)
until(lambda: e.get_async_connect_status(name)[1] == hixl.CONNECTED)
e.disconnect(name)
[*before, e.get_async_connect_status(name)[1].name]
""") == [SUCCESS, "NOT_CONNECT", "CONNECTED"]


def test_rule_1_13_latest_submission_wins_ok(run):
    # The connect runs into its timeout; the disconnect that was submitted meanwhile stays visible.
    assert run("""
silent = socket.socket()
silent.bind(('127.0.0.1', 0))
silent.listen(1)
kept.append(silent)
peer = '127.0.0.1:%d' % silent.getsockname()[1]
e = engine()
e.connect_async(peer, 400)
running = until(lambda: e.get_async_connect_status(peer)[1] == hixl.CONNECTING)
e.disconnect_async(peer, 400)
seen = set()
def done():
    seen.add(e.get_async_connect_status(peer)[1].name)
    return 'NOT_CONNECT' in seen
ended_so = until(done)
[running, ended_so, 'CONNECT_FAILED' in seen, 'DISCONNECT_PENDING' in seen]
""") == [True, True, False, True]


def test_rule_1_13_finalize_drops_queued_tasks_ok(run):
    assert run("""
silent = socket.socket()
silent.bind(('127.0.0.1', 0))
silent.listen(1)
peer = '127.0.0.1:%d' % silent.getsockname()[1]
e = engine(resources(connect_pool__thread_num=1))
statuses = [e.connect_async(peer, 500)] + [e.connect_async('127.0.0.1:%d' % p, 60000) for p in range(2, 20)]
before = time.monotonic()
e.finalize()
[list(set(statuses)), time.monotonic() - before < 20, e.connect_async(peer)]
""") == [[SUCCESS], True, FAILED]


# --- 3.2, channel_pool -----------------------------------------------------------------------------

POOL = """
import json
def pooled(most, high, low):
    return engine(resources(**{'channel_pool__max_channel': most, 'channel_pool__high_waterline': high,
                               'channel_pool__low_waterline': low}))
def server(fill):
    there, name = listening()
    block = memory(64, fill)
    register(there, block, 64)
    return name, block
"""


def test_rule_3_2_channel_pool_ok(run):
    # Ten peers through a pool of four: every transfer links by itself and evicts the oldest.
    assert run(POOL + """
here = pooled(4, 0.75, 0.25)
local = memory(64)
register(here, local, 64)
servers = [server(i + 1) for i in range(10)]
statuses = [here.transfer_sync(name, READ, [piece(local, block, 64)], 5000) for name, block in servers]
again = here.transfer_sync(servers[0][0], READ, [piece(local, servers[0][1], 64)], 5000)
links = [here.disconnect(name) for name, _ in servers]
[list(set(statuses)), again, links.count(0) <= 4, links[0]]
""") == [[SUCCESS], SUCCESS, True, SUCCESS]


def test_rule_3_2_channel_pool_bad(run):
    # Transfers whose end was not asked for keep their links: the pool is full.
    assert run(POOL + """
here = pooled(3, 0.99, 0.34)
local = memory(64)
register(here, local, 64)
servers = [server(i + 1) for i in range(4)]
requests = [here.transfer_async(name, READ, [piece(local, block, 64)]) for name, block in servers[:3]]
full = here.transfer_sync(servers[3][0], READ, [piece(local, servers[3][1], 64)], 300)
text = hixl.last_error()
ends = [ended(here, request) for _, request in requests]
[[status for status, _ in requests], full, 'channel_pool.max_channel' in text,
 here.transfer_sync(servers[3][0], READ, [piece(local, servers[3][1], 64)], 5000)]
""") == [[SUCCESS] * 3, RESOURCE_EXHAUSTED, True, SUCCESS]


def test_links_with_direct_copies_are_not_idle(run):
    # Small transfers that the program copies by itself count as use, too: others are evicted.
    assert run(POOL + """
here = pooled(4, 0.75, 0.25)
local = memory(64)
register(here, local, 64)
servers = [server(i + 1) for i in range(4)]
def move(i):
    return here.transfer_sync(servers[i][0], READ, [piece(local, servers[i][1], 64)], 5000)
statuses = [move(i) for i in (0, 1, 2)] + [move(0) for _ in range(20)] + [move(3)]
[list(set(statuses)), [here.disconnect(name) for name, _ in servers]]
""") == [[SUCCESS], [SUCCESS, NOT_CONNECTED, NOT_CONNECTED, SUCCESS]]
