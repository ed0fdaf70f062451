"""What the Python package adds, against a real daemon: arrays, bulk registration, views, forks."""

import signal
import subprocess

import pytest
from harness.peer import FAILED, PARAM_INVALID, SUCCESS, TIMEOUT, Peer, engine_id, free_port

MIB = 1 << 20


@pytest.fixture
def pair(two_peers):
    here, there = two_peers
    assert here.connect(there.engine) == SUCCESS
    return here, there


def test_a_batch_of_arrays_moves_without_an_object_per_piece(pair):
    pytest.importorskip("numpy")
    here, there = pair
    local, remote = here.memory(4 * MIB), there.memory(4 * MIB, seed=1)
    status, state = here.run("""
import numpy, time
order = numpy.random.default_rng(0).permutation(1024).astype(numpy.uint64) * 4096
lengths = numpy.full(1024, 4096, dtype=numpy.uint64)
arrays = (local + order, remote + order, lengths)
sync = engine.transfer_sync_arrays(peer, hixl.TransferOp.READ, *arrays, timeout_in_millis=10000)
status, request = engine.transfer_async_arrays(peer, hixl.TransferOp.READ, *arrays)
assert status == 0, hixl.last_error()
deadline = time.monotonic() + 20
while True:
    code, state = engine.get_transfer_status(request)
    if state != hixl.TransferStatus.WAITING or time.monotonic() > deadline:
        break
(sync, state.name)
""", local=local.address, remote=remote.address, peer=there.engine)
    assert (status, state) == (SUCCESS, "COMPLETED")
    assert local.crc() == remote.crc()


def test_blocks_of_two_layers_move_by_index(pair):
    pytest.importorskip("numpy")
    here, there = pair
    local, remote = here.memory(4 * MIB), there.memory(4 * MIB, seed=1)
    # Two layers of 256 blocks of 4 KiB, 8 KiB apart on this side, packed on the other.
    moved, others = here.run("""
import numpy, time
mine = [hixl.BlockTable(local + layer * 4096, 8192, 4096, 256) for layer in range(2)]
theirs = [hixl.BlockTable(base=remote + layer * 256 * 4096, stride=4096, block_bytes=4096, count=256)
          for layer in range(2)]
to, source = numpy.arange(0, 256, 2), numpy.random.default_rng(0).permutation(256)[:128]
sync = engine.transfer_sync_blocks(peer, hixl.TransferOp.READ, mine, theirs, to,
                                   source.astype(numpy.int32), timeout_in_millis=10000)
assert sync == 0, hixl.last_error()
pairs = [(int(t), int(s), layer) for layer in range(2) for t, s in zip(to, source)]
([(crc(name, t * 8192 + layer * 4096, 4096), s * 4096 + layer * 256 * 4096) for t, s, layer in pairs],
 [crc(name, t * 8192, 8192) for t in range(1, 256, 2)])
""", local=local.address, remote=remote.address, peer=there.engine, name=local.name)
    for crc, offset in moved:
        assert crc == remote.crc(offset, 4096)
    assert set(others) == {here.run("zlib.crc32(bytes(8192))")}
    # All of them back, asynchronously.
    status, state = here.run("""
status, request = engine.transfer_async_blocks(
    peer, hixl.TransferOp.WRITE, mine, theirs, numpy.arange(256, dtype=numpy.uint64),
    numpy.arange(256, dtype=numpy.uint32))
assert status == 0, hixl.last_error()
deadline = time.monotonic() + 20
while True:
    code, state = engine.get_transfer_status(request)
    if state != hixl.TransferStatus.WAITING or time.monotonic() > deadline:
        break
(code, state.name)
""", peer=there.engine)
    assert (status, state) == (SUCCESS, "COMPLETED")
    for block in (0, 17, 255):
        assert local.crc(block * 8192 + 4096, 4096) == remote.crc((256 + block) * 4096, 4096)


@pytest.mark.parametrize("change,said", [
    ("theirs.block_bytes = 2048", "that of the local table"),
    ("mine.stride = 4095", "stride"),
    ("mine.count = 0", "count"),
    ("mine.base = 0", "base"),
    ("theirs.base = 2 ** 64 - 4096", "below 2^64"),
    ("blocks[3] = 16", "local_blocks[3] is 16; allowed: 0..15"),
    ("mine.count = 17; blocks[3] = 16", "beyond"),
])
def test_blocks_that_do_not_fit_are_named(two_strict_peers, change, said):
    pytest.importorskip("numpy")
    here, there = two_strict_peers
    assert here.connect(there.engine) == SUCCESS
    local, remote = here.memory(16 * 4096, seed=3), there.memory(17 * 4096, seed=4)
    before = local.crc()
    status, message = here.run(f"""
import numpy
mine = hixl.BlockTable(local, 4096, 4096, 16)
theirs = hixl.BlockTable(remote, 4096, 4096, 17)
blocks = numpy.arange(16, dtype=numpy.uint32)
{change}
(engine.transfer_sync_blocks(peer, hixl.TransferOp.READ, mine, theirs, blocks, numpy.arange(16)),
 hixl.last_error())
""", local=local.address, remote=remote.address, peer=there.engine)
    # Indices are refused by the table, blocks of it that nobody registered by the transfer.
    assert status == (FAILED if said == "beyond" else PARAM_INVALID)
    assert said in message or said == "beyond"
    assert local.crc() == before


@pytest.mark.parametrize("local,remote,error", [
    ("[-1]", "[0]", "IndexError"), ("[0, 1]", "[0]", "ValueError"), ("[0.5]", "[0]", "TypeError"),
    ("[[0]]", "[0]", "TypeError"), ("[1], dtype='>i4'", "[1]", "TypeError"),
    ("[1]", "[1], dtype='>u8'", "TypeError")])
def test_indices_that_are_none_raise(pair, local, remote, error):
    pytest.importorskip("numpy")
    here, there = pair
    assert here.run(f"""
import numpy
table = hixl.BlockTable(4096, 4096, 4096, 2)
try:
    engine.transfer_sync_blocks(peer, hixl.TransferOp.READ, table, [table], numpy.array({local}),
                                numpy.array({remote}))
    raised = ''
except Exception as problem:
    raised = type(problem).__name__
raised
""", peer=there.engine) == error


def test_ten_thousand_ranges_are_registered_at_once(daemon, peer):
    here = peer(daemon())
    assert here.run("""
memory = engine.allocate(40 << 20)
ranges = [hixl.MemDesc(memory.address + i * 4096, 4096) for i in range(10000)]
status, handles = engine.register_mem_batch(ranges, hixl.MemType.MEM_HOST)
(status, len(set(handles)), engine.deregister_mem_batch(handles))
""") == [SUCCESS, 10000, SUCCESS]


def test_views_keep_freed_memory(daemon, peer):
    pytest.importorskip("numpy")
    here = peer(daemon())
    assert here.run("""
import gc
buffer = engine.allocate(1 << 20)
view, array = memoryview(buffer), buffer.numpy('uint32', (1024, 256))
array[:] = 5
buffer.free()
gc.collect()
try:
    buffer.address
    used = True
except ValueError:
    used = False
other = engine.allocate(1 << 20).numpy()
other[:] = 0
(used, repr(buffer), int(array.sum()), view[0])
""") == [False, "<hixl.Buffer, freed>", 5 * 1024 * 256, 5]


def test_a_forked_child_is_refused_and_the_parent_goes_on(pair):
    here, there = pair
    local, remote = here.memory(MIB), there.memory(MIB, seed=1)
    code, text = here.run("""
import multiprocessing
context = multiprocessing.get_context('fork')
queue = context.SimpleQueue()
def child():
    status = engine.transfer_sync(peer, hixl.TransferOp.READ, [])
    queue.put((status, hixl.last_error()))
process = context.Process(target=child)
process.start()
result = queue.get()
process.join()
assert process.exitcode == 0
result
""", peer=there.engine)
    assert code == FAILED and "forked" in text
    piece = (local.address, remote.address, MIB)
    assert here.transfer(there.engine, "READ", [piece]) == SUCCESS
    assert local.crc() == remote.crc()


def test_a_forked_child_may_make_an_engine_of_its_own(daemon, peer):
    here = peer(daemon())
    memory = here.memory(MIB, seed=1)
    assert here.run("""
import multiprocessing
context = multiprocessing.get_context('fork')
queue = context.SimpleQueue()
def child():
    own = hixl.Hixl()
    status = own.initialize('127.0.0.1')
    buffer = own.allocate(1 << 20)
    registered, _ = own.register_mem(hixl.MemDesc(buffer.address, buffer.nbytes), hixl.MemType.MEM_HOST)
    connected = own.connect(parent)
    moved = own.transfer_sync(parent, hixl.TransferOp.READ,
                              [hixl.TransferOpDesc(buffer.address, source, 1 << 20)])
    same = bytes(memoryview(buffer)) == bytes(buffers[name][1])
    queue.put((status, registered, connected, moved, same, hixl.last_error()))
    own.finalize()
process = context.Process(target=child)
process.start()
process.join(30)
(process.exitcode, queue.get() if process.exitcode == 0 else None)
""", parent=here.engine, source=memory.address, name=memory.name) == [0, [0, 0, 0, 0, True, ""]]


def test_a_server_without_calls_comes_back_after_its_daemon(daemon, worker):
    node = daemon()
    # Otherwise the first call would start a private daemon in the place of the killed one.
    environment = {"HIXLD_NO_AUTOSTART": "1"}
    here, there = (Peer(worker(node, environment=environment), engine_id(node)) for _ in range(2))
    local, remote = here.memory(MIB), there.memory(MIB, seed=1)
    assert here.connect(there.engine) == SUCCESS
    piece = (local.address, remote.address, MIB)
    assert here.transfer(there.engine, "READ", [piece]) == SUCCESS
    node.kill()
    assert here.transfer(there.engine, "READ", [piece]) == FAILED
    node.start()
    node.may_be_gone = False
    # The link is made again as soon as the other process is back, which nobody asks for anything.
    assert here.transfer(there.engine, "READ", [piece], timeout_ms=20000) == SUCCESS
    assert local.crc() == remote.crc()


def test_the_interpreter_ends_while_threads_transfer(daemon):
    script = """
import sys, threading
import hixl
a, b = hixl.Hixl(), hixl.Hixl()
assert b.initialize("127.0.0.1:{port}", {{}}) == 0 and a.initialize("127.0.0.1", {{}}) == 0
size = 8 << 20
mine, theirs = [engine.allocate(size, mem_type=hixl.MemType.MEM_HOST) for engine in (a, b)]
for engine, memory in ((a, mine), (b, theirs)):
    assert engine.register_mem(hixl.MemDesc(memory.address, size), hixl.MemType.MEM_HOST)[0] == 0
assert a.connect("127.0.0.1:{port}", 5000) == 0
moved = threading.Semaphore(0)
def loop():
    while True:
        a.transfer_sync("127.0.0.1:{port}", hixl.TransferOp.READ,
                        [hixl.TransferOpDesc(mine.address, theirs.address, size)], 5000)
        moved.release()
for _ in range(4):
    threading.Thread(target=loop, daemon=True).start()
for _ in range(8):
    moved.acquire()
sys.exit(0)
"""
    node = daemon()
    for _ in range(5):
        done = subprocess.run(["/usr/bin/python3", "-c", script.format(port=free_port())], text=True,
                              env=node.environment(), capture_output=True, timeout=120, check=False)
        assert (done.returncode, done.stderr) == (0, "")


def test_a_transfer_waits_for_a_daemon_that_stands_still(daemon, peer):
    node = daemon()
    here, there = peer(node), peer(node)
    local, remote = here.memory(4 * MIB), there.memory(4 * MIB, seed=9)
    assert here.connect(there.engine) == SUCCESS
    node.process.send_signal(signal.SIGSTOP)
    here.start_transfer(there.engine, "READ", [(local.address, remote.address, 4 * MIB)], timeout_ms=1)
    node.process.send_signal(signal.SIGCONT)
    # Whatever it says is final: what has not landed by now never does.
    status = here.worker.result()
    before = local.crc()
    assert status in (SUCCESS, TIMEOUT)
    assert here.transfer(there.engine, "READ", [(local.address + MIB, remote.address, 1)]) == SUCCESS
    assert status == TIMEOUT or before == remote.crc()
