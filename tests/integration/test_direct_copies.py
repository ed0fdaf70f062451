"""Small transfers between processes of one user are copied by the caller itself, and the daemon can
take that right back at any moment (docs/direct-copies.md)."""

import itertools
import os
import random
import re
import signal
import tempfile
import time

import pytest
from harness.daemon import Daemon
from harness.peer import FAILED, NOT_CONNECTED, PARAM_INVALID, SUCCESS, TIMEOUT, free_port
from harness.wait import eventually
from test_metrics import scrape, total

KIB, MIB = 1 << 10, 1 << 20
NO_LINK = (NOT_CONNECTED, PARAM_INVALID, FAILED)

# Reaches into the gates that this process has mapped: a thread of it can be made to seem inside.
_GATE = """
import ctypes, os
def gates():
    lines = [line.split() for line in open('/proc/self/maps') if 'memfd:hixld-direct' in line]
    return [tuple(int(part, 16) for part in line[0].split('-')) for line in lines]

LANES, LANE = 256, 128
def inside(change):
    for start, _ in gates():
        ctypes.c_uint32.from_address(start + LANES + 15 * LANE).value += change

def scribble(seed):
    for start, end in gates():
        ctypes.memmove(start, random.Random(seed).randbytes(end - start), end - start)
"""

# Writes one small block after the other, each filled with another byte, until it is told to stop.
_WRITER = """
import threading
statuses, stop = {}, threading.Event()
def write_on(target_engine, name, piece):
    view, value = buffers[name][1], 0
    while not stop.is_set():
        value = value % 250 + 1
        view[:piece[2]] = bytes([value]) * piece[2]
        status = engine.transfer_sync(target_engine, hixl.TransferOp.WRITE, descriptors([piece]), 5000)
        statuses[status] = statuses.get(status, 0) + 1
writer = threading.Thread(target=write_on, args=(target_engine, name, piece), daemon=True)
writer.start()
"""


def start_writer(here, there, local, remote, length=4 * KIB):
    here.run(_WRITER, name=local.name, piece=(local.address, remote.address, length),
             target_engine=there.engine)


def channel(node, engine):
    """The one channel that this engine has made."""
    with node.rpc() as rpc:
        engines = rpc.admin("ListEngines").engines
    [found] = [c for e in engines if e.engine_id == engine for c in e.channels if c.initiator]
    return found


def direct(node, here):
    return channel(node, here.engine).direct_transfers


def two(node, peer, **options):
    return peer(node, **options), peer(node, **options)


def moved(here, there, local, remote, length, op="READ"):
    """One transfer, and whether both sides hold the same afterwards."""
    assert here.transfer(there.engine, op, [(local.address, remote.address, length)]) == SUCCESS
    assert local.crc(0, length) == remote.crc(0, length)


@pytest.fixture
def pair(daemon, peer):
    """Two connected clients of one daemon with a grant, and their memory."""

    def make(config=None, kind="pool", nbytes=64 * KIB):
        node = daemon(config=config)
        # An engine that does not relay: unregistered memory is PARAM_INVALID.
        here, there = two(node, peer, options={"LocalCommRes": '{"version":"1.3"}'})
        for one in (here, there):
            one.run(_GATE)
        local, remote = here.memory(nbytes, kind, seed=1), there.memory(nbytes, kind, seed=2)
        assert here.connect(there.engine) == SUCCESS
        moved(here, there, local, remote, 4 * KIB)
        assert direct(node, here) == 1
        return node, here, there, local, remote

    return make


# --- the same bytes, by whichever way -------------------------------------------------------------


@pytest.mark.parametrize("kind", ["pool", "plain"])
@pytest.mark.parametrize("way", ["direct", "off here", "off in the daemon"])
def test_every_way_moves_the_same_bytes(daemon, worker, peer, way, kind):
    config = {"local": {"direct": "off"}} if way == "off in the daemon" else None
    node = daemon(config=config)
    os.environ["HIXLD_DIRECT"] = "off" if way == "off here" else "on"
    try:
        here, there = two(node, peer)
    finally:
        del os.environ["HIXLD_DIRECT"]
    local, remote = here.memory(2 * MIB, kind, seed=1), there.memory(2 * MIB, kind, seed=2)
    assert here.connect(there.engine) == SUCCESS
    chance = random.Random(3)
    for op, skew in (("READ", 1), ("WRITE", 11)):
        for count in (1, 3, 100):
            sizes = [chance.choice([1, 7, 64, 4095, 4096, 5000]) for _ in range(count)]
            starts = [sum(sizes[:i]) for i in range(count)]
            # Runs of neighbours, with gaps on one side here and there.
            gaps = list(itertools.accumulate(chance.choice([0, 0, 1, 5000]) for _ in range(count)))
            pieces = [(local.address + a, remote.address + a + gap + skew, n)
                      for a, gap, n in zip(starts, gaps, sizes)]
            before = (local if op == "READ" else remote).crc()
            assert here.transfer(there.engine, op, pieces) == SUCCESS
            assert (local if op == "READ" else remote).crc() != before
            crcs = "[crc(name, offset, n) for offset, n in ranges]"
            mine = here.run(crcs, name=local.name, ranges=[(l - local.address, n) for l, _, n in pieces])
            theirs = there.run(crcs, name=remote.name,
                               ranges=[(r - remote.address, n) for _, r, n in pieces])
            assert mine == theirs
    # What is too large is the daemon's, whatever the way.
    moved(here, there, local, remote, 2 * MIB)
    seen = channel(node, here.engine)
    assert seen.transfers == 7
    assert seen.direct_transfers == (6 if way == "direct" else 0)


def test_two_engines_of_one_process_copy_plain_memory_with_overlap(daemon, peer):
    node = daemon()
    here = peer(node)
    statuses = here.run("""
second = hixl.Hixl()
statuses = [second.initialize(other, {})]
memory = Plain(65536)
memory.view[:] = random.Random(1).randbytes(65536)
wanted = memory.view[0:8192].tobytes()
buffers['shared'] = (memory, memory.view)
for one in (engine, second):
    statuses.append(one.register_mem(hixl.MemDesc(memory.address, 65536), hixl.MemType.MEM_HOST)[0])
statuses.append(engine.connect(other, timeout_in_millis=5000))
statuses.append(engine.transfer_sync(other, hixl.TransferOp.WRITE,
                                     descriptors([(memory.address, memory.address + 100, 8192)]), 5000))
statuses.append(0 if memory.view[100:8292].tobytes() == wanted else -1)
statuses
""", other=f"127.0.0.1:{free_port()}")
    assert statuses == [SUCCESS] * 6
    assert direct(node, here) == 1


def test_errors_are_those_of_the_daemon(pair):
    node, here, there, local, remote = pair()
    good = (local.address, remote.address, 4096)
    bad = [[(0, remote.address, 16)], [(local.address, 0, 16)], [(local.address, remote.address, 0)], [],
           [(local.address + local.nbytes - 8, remote.address, 16)], [(local.address, remote.address - 8, 16)],
           [(local.address, remote.address, 2**64 - 1)], [(2**63, remote.address, 16)],
           [good, (local.address, remote.address + remote.nbytes, 1)]]
    before = remote.crc()
    assert [here.transfer(there.engine, "WRITE", pieces) for pieces in bad] == [PARAM_INVALID] * len(bad)
    assert remote.crc() == before
    assert here.transfer("127.0.0.1:1", "WRITE", [good]) == NOT_CONNECTED
    assert here.run("engine.transfer_sync(remote, hixl.TransferOp.READ, descriptors(pieces), 0)",
                    remote=there.engine, pieces=[good]) == PARAM_INVALID
    assert direct(node, here) == 1


def test_memory_that_is_registered_later_is_reached_too(pair):
    node, here, there, local, remote = pair()
    more, mine = there.memory(MIB, seed=3), here.memory(MIB, seed=4)
    deadline = time.monotonic() + 30
    while direct(node, here) < 3 and time.monotonic() < deadline:
        moved(here, there, mine, more, 8 * KIB)
        moved(here, there, local, remote, 8 * KIB)
    assert direct(node, here) >= 3


def test_the_totals_are_in_the_metrics(daemon, peer):
    port = free_port()
    node = daemon(config={"telemetry": {"metrics_address": f"127.0.0.1:{port}"}})
    here, there = two(node, peer)
    local, remote = here.memory(MIB), there.memory(MIB, seed=1)
    assert here.connect(there.engine) == SUCCESS
    for _ in range(10):
        moved(here, there, local, remote, 4 * KIB)
    pieces = [(local.address + i * 8192, remote.address + i * 4096, 100) for i in range(5)]
    assert here.transfer(there.engine, "WRITE", pieces) == SUCCESS
    metrics = scrape(node, port)
    assert total(metrics, "hixld_transfers_total", transport="direct", op="read", result="completed") == 10
    assert total(metrics, "hixld_transfers_total", transport="direct", op="write") == 1
    assert total(metrics, "hixld_transfer_bytes_total", transport="direct") == 40 * KIB + 500
    assert total(metrics, "hixld_transfer_descriptors_total", transport="direct") == 15
    with node.rpc() as rpc:
        status = rpc.admin("GetStatus")
    assert (status.transfers_completed, status.bytes_read, status.bytes_written) == (11, 40 * KIB, 500)
    shown = node.ctl("engines").stdout
    assert re.search(r"initiator +local +\S+ +open +11 ", shown), shown


# --- who may ---------------------------------------------------------------------------------------


@pytest.fixture
def public_node(installation):
    """A daemon whose sockets every user can reach."""
    with tempfile.TemporaryDirectory(prefix="hixld-public-") as directory:
        os.chmod(directory, 0o711)
        node = Daemon(installation, directory, config={"socket": {"mode": "0666"}}).start()
        yield node
        node.finish()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")
def test_another_user_gets_no_grant(public_node, worker, peer):
    node = public_node
    there = peer(node)
    remote = there.memory(64 * KIB, seed=1)
    stranger = worker(node)
    stranger.run("""
import os
os.setgroups([]); os.setresgid(65534, 65534, 65534); os.setresuid(65534, 65534, 65534)
engine = hixl.Hixl()
""")
    code = """
status = [engine.initialize(name, {})]
memory = engine.allocate(65536, mem_type=hixl.MemType.MEM_HOST)
status.append(engine.register_mem(hixl.MemDesc(memory.address, 65536), hixl.MemType.MEM_HOST)[0])
status.append(engine.connect(remote_engine, timeout_in_millis=5000))
for _ in range(3):
    status.append(engine.transfer_sync(remote_engine, hixl.TransferOp.READ,
                                       [hixl.TransferOpDesc(memory.address, remote, 4096)], 5000))
mapped = 'memfd:hixld-direct' in open('/proc/self/maps').read()
(status, mapped, bytes(memoryview(memory).cast('B')[:4096]).hex())
"""
    name = f"127.0.0.1:{free_port()}"
    status, mapped, got = stranger.run(code, name=name, remote_engine=there.engine, remote=remote.address)
    assert status == [SUCCESS] * 6 and not mapped
    assert got == there.run(f"buffers[{remote.name!r}][1][:4096].hex()")
    seen = channel(node, name)
    assert (seen.transfers, seen.direct_transfers) == (3, 0)


# --- taking it back --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["pool", "plain"])
def test_no_byte_lands_after_deregistering_has_returned(pair, kind):
    node, here, there, local, remote = pair(kind=kind)
    start_writer(here, there, local, remote)
    eventually(lambda: here.run("statuses.get(0, 0)") > 1000)
    seen = there.run("""
status = engine.deregister_mem(handle)
view = buffers[name][1]
view[:4096] = bytes(4096)
import time
end, foreign = time.monotonic() + 0.5, 0
while time.monotonic() < end:
    foreign += bytes(view[:4096]) != bytes(4096)
(status, foreign)
""", handle=remote.handle, name=remote.name)
    assert seen == [SUCCESS, 0]
    # The writer is told by the daemon what is wrong.
    eventually(lambda: here.run("statuses.get(wanted, 0)", wanted=PARAM_INVALID) > 0)
    here.run("stop.set(); writer.join()")
    assert set(map(int, here.run("statuses"))) <= {SUCCESS, PARAM_INVALID, FAILED}


def test_no_byte_lands_after_disconnecting_has_returned(pair):
    node, here, there, local, remote = pair()
    start_writer(here, there, local, remote)
    eventually(lambda: here.run("statuses.get(0, 0)") > 1000)
    assert here.run("engine.disconnect(remote, timeout_in_millis=5000)", remote=there.engine) == SUCCESS
    seen = there.run("""
view = buffers[name][1]
view[:4096] = bytes(4096)
import time
end, foreign = time.monotonic() + 0.5, 0
while time.monotonic() < end:
    foreign += bytes(view[:4096]) != bytes(4096)
foreign
""", name=remote.name)
    assert seen == 0
    here.run("stop.set(); writer.join()")
    assert here.run("statuses.get(wanted, 0)", wanted=NOT_CONNECTED) > 0
    # And a new link has a new grant.
    assert here.connect(there.engine) == SUCCESS
    moved(here, there, local, remote, 4 * KIB)
    assert direct(node, here) == 1


def test_deregistering_waits_for_a_copy_in_progress_and_not_for_a_dead_copier(pair):
    node, here, there, _, remote = pair()
    here.run("inside(1)")
    there.worker.start("engine.deregister_mem(handle)", handle=remote.handle)
    with pytest.raises(TimeoutError):
        there.worker.result(timeout=1)
    here.worker.kill()
    assert there.worker.result(timeout=60) == SUCCESS


def test_a_stopped_copier_makes_deregistering_fail_by_name_until_it_has_left(pair):
    node, here, there, _, remote = pair(config={"local": {"direct_patience": "200ms"}})
    here.run("inside(1)")
    here.worker.process.send_signal(signal.SIGSTOP)
    status, text = there.run("(engine.deregister_mem(handle), hixl.last_error())", handle=remote.handle)
    assert status == FAILED
    assert f"pid {here.worker.process.pid} " in text and "local.direct_patience" in text
    here.worker.process.send_signal(signal.SIGCONT)
    here.run("inside(-1)")
    assert there.run("engine.deregister_mem(handle)", handle=remote.handle) == SUCCESS
    node.assert_alive()


def test_a_target_killed_under_copies_ends_them_and_leaves_the_daemon_well(pair, peer):
    node, here, there, local, remote = pair()
    start_writer(here, there, local, remote)
    eventually(lambda: here.run("statuses.get(0, 0)") > 1000)
    there.worker.kill()
    eventually(lambda: sum(here.run("[statuses.get(c, 0) for c in codes]", codes=list(NO_LINK))) > 0)
    here.run("stop.set(); writer.join()")
    # Its name is free, and whoever takes it is reached anew.
    again = peer(node, engine=there.engine)
    other = again.memory(64 * KIB, seed=5)
    if here.connect(again.engine) != SUCCESS:
        here.run("engine.disconnect(remote, timeout_in_millis=5000)", remote=again.engine)
        assert here.connect(again.engine) == SUCCESS
    moved(here, again, local, other, 4 * KIB)


def test_a_daemon_that_dies_takes_its_grants_along(daemon, peer):
    node = daemon()
    here, there = two(node, peer)
    local, remote = here.memory(64 * KIB, seed=1), there.memory(64 * KIB, seed=2)
    assert here.connect(there.engine) == SUCCESS
    moved(here, there, local, remote, 4 * KIB)
    node.kill()
    piece = [(local.address, remote.address, 4 * KIB)]
    eventually(lambda: here.transfer(there.engine, "READ", piece, timeout_ms=500) in (FAILED, TIMEOUT))
    node.start()
    eventually(lambda: here.transfer(there.engine, "READ", piece, timeout_ms=5000) == SUCCESS)
    assert local.crc(0, 4 * KIB) == remote.crc(0, 4 * KIB)
    eventually(lambda: here.transfer(there.engine, "READ", piece) == SUCCESS and direct(node, here) > 0)
    node.may_be_gone = False


# --- nonsense --------------------------------------------------------------------------------------


def test_a_client_that_scribbles_over_its_gate_hurts_only_itself(pair, peer):
    node, here, there, _, remote = pair(config={"local": {"direct_patience": "200ms"}})
    bystander, partner = two(node, peer)
    mine, theirs = bystander.memory(64 * KIB), partner.memory(64 * KIB, seed=3)
    assert bystander.connect(partner.engine) == SUCCESS
    last = 0
    for seed in range(20):
        here.run("scribble(seed)", seed=seed)
        seen = channel(node, here.engine)
        assert last <= seen.direct_bytes < 1 << 50
        last = seen.direct_bytes
        moved(bystander, partner, mine, theirs, 4 * KIB)
    there.run("engine.deregister_mem(handle)", handle=remote.handle)
    here.worker.kill()
    eventually(lambda: there.run("engine.deregister_mem(handle)", handle=remote.handle) == SUCCESS)
    moved(bystander, partner, mine, theirs, 4 * KIB)
    assert direct(node, bystander) == 21


def test_nonsense_on_the_fd_channel_is_refused_by_name(daemon):
    node = daemon()
    with node.fd_channel() as raw:
        welcome = raw.hello().welcome
        assert welcome.direct_layout_version == 1 and welcome.direct_max_bytes > 0
        with node.rpc(raw.token) as rpc:
            engine = rpc.engine("OpenEngine", local_engine=f"127.0.0.1:{free_port()}").engine_handle
        asked = {"engine_handle": engine, "channel_id": 77, "layout_version": 1}
        for wrong, word in [({}, "channel 77"), ({"engine_handle": 4711}, "4711"),
                            ({"layout_version": 9}, "version 9")]:
            answer, fds = raw.ask(get_direct_grant={**asked, **wrong})
            assert answer.WhichOneof("body") == "error" and word in answer.error.message and not fds
        answer, fds = raw.ask(get_direct_file={"grant_id": 5, "file": 0})
        assert "grant 5" in answer.error.message and not fds


def test_many_grants_leave_nothing_behind(pair):
    node, here, there, local, remote = pair()
    count = f"/proc/{node.pid}/fd"

    def cycle():
        assert here.run("engine.disconnect(remote, timeout_in_millis=5000)", remote=there.engine) == SUCCESS
        assert here.connect(there.engine) == SUCCESS
        moved(here, there, local, remote, 4 * KIB)

    for _ in range(5):
        cycle()
    descriptors = len(os.listdir(count))
    for _ in range(50):
        cycle()
    eventually(lambda: len(os.listdir(count)) <= descriptors)
    eventually(lambda: here.run("len(gates())") == 1)
