"""Contract 1.11, relay of unregistered memory: one case that must work and one that must not, per rule."""

import time

import pytest
from harness.peer import FAILED, NOT_CONNECTED, PARAM_INVALID, SUCCESS, TIMEOUT

KIB, MIB = 1 << 10, 1 << 20
OPS = ["READ", "WRITE"]
HIXL_ENGINE = {"LocalCommRes": '{"version":"1.3"}'}


@pytest.fixture(params=["one daemon", "two nodes", "one daemon, no ptrace", "two nodes, no ptrace"])
def nodes(request, daemon):
    """The daemons of two peers, with and without the right to touch their plain memory."""
    may_ptrace = "no ptrace" not in request.param
    if request.param.startswith("one"):
        node = daemon(may_ptrace=may_ptrace)
        return [node, node]
    key = request.getfixturevalue("cluster_key")
    return [daemon(host=host, cluster_key=key, may_ptrace=may_ptrace)
            for host in request.getfixturevalue("hosts")(2)]


@pytest.fixture
def pair(nodes, peer):
    """Factory of two connected peers, by their options."""

    def make(here_options=None, there_options=None):
        here, there = peer(nodes[0], options=here_options), peer(nodes[1], options=there_options)
        assert here.connect(there.engine) == SUCCESS
        return here, there

    return make


# What a call is told, and the end of an accepted request.
ASYNC = """
status, request = engine.transfer_async(remote, hixl.TransferOp.READ, descriptors(pieces))
state = hixl.TransferStatus.WAITING if status == 0 else None
while state == hixl.TransferStatus.WAITING:
    _, state = engine.get_transfer_status(request)
[status, 0 if status else 1, state and state.name]
"""


def relayed(node):
    with node.rpc() as rpc:
        return sum(engine.transfers_relayed for engine in rpc.admin("ListEngines").engines)


def move(here, there, op, pieces, ms=60_000):
    return here.transfer(there.engine, op, pieces, timeout_ms=ms)


@pytest.mark.parametrize("op", OPS)
def test_1_11_unregistered_host_to_unregistered_host(pair, op):
    here, there = pair()
    local = here.memory(3 * MIB, "plain", seed=1, register=False)
    remote = there.memory(3 * MIB, "plain", seed=2, register=False)
    expected = remote.crc() if op == "READ" else local.crc()
    assert move(here, there, op, [(local.address, remote.address, 3 * MIB)]) == SUCCESS
    assert local.crc() == remote.crc() == expected
    assert relayed(here.daemon) == 1


@pytest.mark.parametrize("registered", ["local", "remote"])
@pytest.mark.parametrize("op", OPS)
def test_1_11_registered_and_unregistered_memory(pair, op, registered):
    here, there = pair()
    local = here.memory(MIB, "pool" if registered == "local" else "plain", seed=1,
                        register=registered == "local")
    remote = there.memory(MIB, "pool" if registered == "remote" else "plain", seed=2,
                          register=registered == "remote")
    expected = remote.crc() if op == "READ" else local.crc()
    assert move(here, there, op, [(local.address, remote.address, MIB)]) == SUCCESS
    assert local.crc() == remote.crc() == expected


@pytest.mark.parametrize("op", OPS)
def test_1_11_registered_device_and_unregistered_host(pair, op):
    """B22; the device is the simulated one."""
    here, there = pair()
    device = here.run("""
device = engine.allocate(size, mem_type=hixl.MemType.MEM_DEVICE)
memoryview(device).cast('B')[:size] = bytes([7]) * size
[engine.register_mem(hixl.MemDesc(device.address, size), hixl.MemType.MEM_DEVICE)[0], device.address]
""", size=MIB)
    assert device[0] == SUCCESS
    remote = there.memory(MIB, "plain", seed=2, register=False)
    assert move(here, there, op, [(device[1], remote.address, MIB)]) == SUCCESS
    assert here.run("zlib.crc32(memoryview(device).cast('B')[:size])") == remote.crc()


def test_1_11_if_any_piece_is_unregistered_the_whole_batch_is_relayed(pair):
    here, there = pair()
    local = here.memory(64 * KIB, seed=1)
    known = there.memory(32 * KIB, seed=2)
    unknown = there.memory(32 * KIB, "plain", seed=3, register=False)
    assert move(here, there, "READ", [(local.address, known.address, 32 * KIB),
                                      (local.address + 32 * KIB, unknown.address, 32 * KIB)]) == SUCCESS
    assert local.crc(0, 32 * KIB) == known.crc()
    assert local.crc(32 * KIB, 32 * KIB) == unknown.crc()
    assert relayed(here.daemon) == 1


def test_1_11_a_range_that_leaves_a_registered_region(pair):
    here, there = pair()
    local = here.memory(MIB)
    remote = there.memory(MIB, "plain", seed=3, register=False)
    registered = there.run("engine.register_mem(hixl.MemDesc(a, n), hixl.MemType.MEM_HOST)[0]",
                           a=remote.address + 4096, n=8192)
    assert registered == SUCCESS
    assert move(here, there, "READ", [(local.address, remote.address, MIB)]) == SUCCESS
    assert local.crc() == remote.crc()


def test_1_11_small_pieces_are_packed_and_large_ones_split(pair):
    here, there = pair({"BufferPool": "2:1"}, {"BufferPool": "2:1"})
    local = here.memory(12 * MIB, "plain", register=False)
    remote = there.memory(12 * MIB, "plain", seed=4, register=False)
    small = [(local.address + i * 1000, remote.address + i * 1000, 999) for i in range(3000)]
    large = [(local.address + 4 * MIB, remote.address + 4 * MIB, 8 * MIB)]
    assert move(here, there, "READ", small + large) == SUCCESS
    assert local.crc(4 * MIB) == remote.crc(4 * MIB)
    crcs = "[crc(name, i * 1000, 999) for i in range(0, 3000, 7)] + [buffers[name][1][999]]"
    assert here.run(crcs, name=local.name)[:-1] == there.run(crcs, name=remote.name)[:-1]
    assert here.run(crcs, name=local.name)[-1] == 0, "what lies between the pieces is untouched"


def test_1_11_the_pool_holds_num_buffers_of_size_mb(daemon, peer):
    """NUM x SIZE MiB are under way at most: who needs more buffers than are free waits for them."""
    node = daemon(config={"devices": {"sim": {"copy_bandwidth": "16MiB"}}})
    here, there = peer(node, options={"BufferPool": "4:2"}), peer(node)
    assert here.connect(there.engine) == SUCCESS
    outcome = here.run("""
import threading, time
size = 12 << 20
device = engine.allocate(size, mem_type=hixl.MemType.MEM_DEVICE)
engine.register_mem(hixl.MemDesc(device.address, size), hixl.MemType.MEM_DEVICE)
def move(nbytes, ms):
    return engine.transfer_sync(remote, hixl.TransferOp.WRITE, descriptors([(device.address, target, nbytes)]), ms)
def beside(nbytes):
    # Of a transfer of so many bytes and a small one that comes a moment later.
    first = []
    thread = threading.Thread(target=lambda: first.append(move(nbytes, 30000)))
    thread.start()
    time.sleep(0.05)
    second = move(4096, 100)
    thread.join()
    return [*first, second]
[beside(4 << 20), beside(size)]
""", timeout=90, remote=there.engine, target=there.memory(12 * MIB, "plain", register=False).address)
    # Two buffers of 2 MiB leave room for others; twelve would be needed where there are four.
    assert outcome == [[SUCCESS, SUCCESS], [SUCCESS, TIMEOUT]]


def test_1_11_a_relayed_batch_is_of_one_kind(pair):
    here, there = pair()
    device = here.run("""
device = engine.allocate(65536, mem_type=hixl.MemType.MEM_DEVICE)
engine.register_mem(hixl.MemDesc(device.address, 65536), hixl.MemType.MEM_DEVICE)
device.address
""")
    local = here.memory(64 * KIB)
    remote = there.memory(64 * KIB, "plain", seed=2, register=False)
    mixed = [(device, remote.address, 4096), (local.address, remote.address + 4096, 4096)]
    assert move(here, there, "READ", mixed) == PARAM_INVALID
    assert "one kind" in here.run("hixl.last_error()")
    assert move(here, there, "READ", mixed[:1]) == SUCCESS
    assert move(here, there, "READ", mixed[1:]) == SUCCESS


def test_1_11_a_bad_address_is_an_error_and_the_link_goes_on(pair):
    here, there = pair()
    local, remote = here.memory(64 * KIB, seed=1), there.memory(64 * KIB, seed=2)
    for piece in [(local.address, 0x1000, 64), (0x1000, remote.address, 64)]:
        for op in OPS:
            assert move(here, there, op, [piece]) == FAILED
    assert move(here, there, "READ", [(local.address, (1 << 64) - 4096, 8192)]) == PARAM_INVALID
    assert move(here, there, "READ", [(local.address, remote.address, 64 * KIB)]) == SUCCESS
    assert local.crc() == remote.crc()


@pytest.mark.parametrize("off", ["here", "there", "both"])
def test_1_11_a_pool_of_0_0_refuses(pair, off):
    """B23; all processes of a cluster are to use the same value."""
    options = {"BufferPool": "0:0"}
    here, there = pair(options if off != "there" else None, options if off != "here" else None)
    local, remote = here.memory(4096), there.memory(4096, "plain", seed=1, register=False)
    before = local.crc()
    assert move(here, there, "READ", [(local.address, remote.address, 4096)]) == FAILED
    assert "BufferPool" in here.run("hixl.last_error()")
    assert local.crc() == before
    known = there.memory(4096, seed=2)
    assert move(here, there, "READ", [(local.address, known.address, 4096)]) == SUCCESS


def test_1_11_other_kinds_of_engine_never_relay(pair):
    """1.8: a HixlEngine answers PARAM_INVALID."""
    here, there = pair(HIXL_ENGINE, HIXL_ENGINE)
    local, remote = here.memory(4096), there.memory(4096, "plain", seed=1, register=False)
    assert move(here, there, "READ", [(local.address, remote.address, 4096)]) == PARAM_INVALID
    assert here.run("hixl.Hixl().initialize('127.0.0.1', options)",
                    options={**HIXL_ENGINE, "BufferPool": "4:8"}) == PARAM_INVALID
    assert here.run("hixl.Hixl().initialize('127.0.0.1', options)",
                    options={**HIXL_ENGINE, "BufferPool": "0:0"}) == SUCCESS


def test_1_9_asynchronous_transfers_are_never_relayed(pair):
    here, there = pair()
    local, remote = here.memory(4096), there.memory(4096, "plain", seed=1, register=False)
    before = local.crc()
    pieces = [(local.address, remote.address, 4096)]
    assert here.run(ASYNC, remote=there.engine, pieces=pieces) == [PARAM_INVALID, 0, None]
    assert local.crc() == before
    assert relayed(here.daemon) == 0


def test_1_9_asynchronous_transfers_of_deregistered_memory(pair):
    here, there = pair()
    local, remote = here.memory(4096), there.memory(4096, "plain", seed=1)
    pieces = [(local.address, remote.address, 4096)]
    for _ in range(3):
        assert here.run(ASYNC, remote=there.engine, pieces=pieces)[::2] == [SUCCESS, "COMPLETED"]
    before = local.crc()
    assert there.run("engine.deregister_mem(handle)", handle=remote.handle) == SUCCESS
    # Another node may hear of it a moment later; then the transfer fails there.
    status, _, state = here.run(ASYNC, remote=there.engine, pieces=pieces)
    assert status == PARAM_INVALID or (here.daemon is not there.daemon and state == "FAILED")
    assert here.run(ASYNC, remote=there.engine, pieces=pieces) == [PARAM_INVALID, 0, None]
    assert there.run("engine.register_mem(hixl.MemDesc(a, 4096), hixl.MemType.MEM_HOST)[0]", a=remote.address) == SUCCESS
    assert here.run(ASYNC, remote=there.engine, pieces=pieces)[::2] == [SUCCESS, "COMPLETED"]
    assert local.crc() == before == remote.crc()


@pytest.mark.parametrize("op", OPS)
def test_b11_without_a_relay_deregistered_memory_is_invalid(pair, op):
    here, there = pair(HIXL_ENGINE, HIXL_ENGINE)
    local, remote = here.memory(MIB), there.memory(MIB, "plain", seed=3)
    piece = (local.address, remote.address, MIB)
    assert move(here, there, op, [piece]) == SUCCESS
    before = local.crc(), remote.crc()
    assert there.run("engine.deregister_mem(handle)", handle=remote.handle) == SUCCESS
    # A large one that overtakes the news from another node may have moved in parts before it was refused.
    outcome = move(here, there, op, [piece])
    assert outcome == PARAM_INVALID or (here.daemon is not there.daemon and outcome == FAILED)
    assert move(here, there, op, [piece]) == PARAM_INVALID
    assert (local.crc(), remote.crc()) == before


def test_1_11_waiting_for_a_buffer_counts_against_the_timeout(daemon, peer):
    node = daemon(config={"devices": {"sim": {"copy_bandwidth": "16MiB"}}})
    here, there = peer(node, options={"BufferPool": "1:8"}), peer(node)
    assert here.connect(there.engine) == SUCCESS
    # A slow device holds the only buffer for a second or so.
    size = 16 * MIB
    device = here.run("""
device = engine.allocate(size, mem_type=hixl.MemType.MEM_DEVICE)
engine.register_mem(hixl.MemDesc(device.address, size), hixl.MemType.MEM_DEVICE)
device.address
""", size=size)
    slow = there.memory(size, "plain", seed=1, register=False)
    local, quick = here.memory(4096), there.memory(4096, "plain", seed=2, register=False)
    outcome = here.run("""
import threading, time
done = []
def run():
    done.append(engine.transfer_sync(remote, hixl.TransferOp.WRITE, descriptors(long), 30000))
thread = threading.Thread(target=run)
thread.start()
statuses = []
deadline = time.monotonic() + 20
while not done and time.monotonic() < deadline:
    start = time.monotonic()
    statuses.append(engine.transfer_sync(remote, hixl.TransferOp.READ, descriptors(short), 50))
    took = time.monotonic() - start
    if statuses[-1] == hixl.TIMEOUT:
        break
thread.join()
[statuses[-1], took, hixl.last_error(), done,
 engine.transfer_sync(remote, hixl.TransferOp.READ, descriptors(short), 5000)]
""", timeout=90, remote=there.engine, long=[(device, slow.address, size)],
                       short=[(local.address, quick.address, 4096)])
    assert outcome[0] == TIMEOUT
    assert 0.04 < outcome[1] < 5
    assert "BufferPool" in outcome[2]
    assert outcome[3:] == [[SUCCESS], SUCCESS]


def test_deregistered_memory_is_relayed_and_not_reached_by_what_was_under_way(pair):
    """B11 on this kind of engine: the range is unknown, so it is relayed."""
    here, there = pair()
    local, remote = here.memory(MIB), there.memory(MIB, "plain", seed=3)
    piece = (local.address, remote.address, MIB)
    assert move(here, there, "READ", [piece]) == SUCCESS
    assert there.run("engine.deregister_mem(handle)", handle=remote.handle) == SUCCESS
    assert move(here, there, "READ", [piece]) == SUCCESS
    assert relayed(here.daemon) == 1


def test_many_relayed_transfers_at_once(pair):
    here, there = pair()
    size, threads = 256 * KIB, 12
    local = here.memory(size * threads, "plain", register=False)
    remote = there.memory(size * threads, "plain", seed=5, register=False)
    statuses = here.run("""
import threading
statuses = []
def run(i):
    for _ in range(5):
        piece = [(local + i * size, target + i * size, size)]
        statuses.append(engine.transfer_sync(remote, hixl.TransferOp.READ, descriptors(piece), 30000))
workers = [threading.Thread(target=run, args=(i,)) for i in range(threads)]
[w.start() for w in workers]
[w.join() for w in workers]
statuses
""", timeout=90, remote=there.engine, local=local.address, target=remote.address, size=size, threads=threads)
    assert statuses == [SUCCESS] * 5 * threads
    assert local.crc() == remote.crc()


@pytest.mark.parametrize("victim", ["initiator", "target"])
def test_a_client_killed_in_the_middle_of_relayed_transfers(pair, victim):
    here, there = pair()
    size = 32 * MIB
    local = here.memory(size, "plain", register=False)
    remote = there.memory(size, "plain", seed=1, register=False)
    here.worker.start("""
statuses = []
for _ in range(200):
    statuses.append(engine.transfer_sync(remote, hixl.TransferOp.READ, descriptors(pieces), 5000))
    if statuses[-1] != 0:
        break
statuses
""", remote=there.engine, pieces=[(local.address, remote.address, size)])
    deadline = time.monotonic() + 30
    while relayed(here.daemon) < 1 and time.monotonic() < deadline:
        time.sleep(0.01)
    (here if victim == "initiator" else there).worker.kill()
    if victim == "target":
        assert here.worker.result(60)[-1] in (FAILED, TIMEOUT, NOT_CONNECTED, PARAM_INVALID)


def test_the_operator_may_forbid_it(daemon, peer):
    node = daemon(config={"security": {"relay_unregistered_memory": False}})
    here, there = peer(node), peer(node)
    assert here.connect(there.engine) == SUCCESS
    local, remote = here.memory(4096), there.memory(4096, "plain", seed=1, register=False)
    assert move(here, there, "READ", [(local.address, remote.address, 4096)]) == FAILED
    assert "security.relay_unregistered_memory" in here.run("hixl.last_error()")


@pytest.mark.parametrize("value, status", [("4:8", SUCCESS), ("1:1", SUCCESS), ("0:0", SUCCESS), ("", SUCCESS),
                                           ("4", PARAM_INVALID), ("4:8:1", PARAM_INVALID), ("0:8", PARAM_INVALID),
                                           ("4:0", PARAM_INVALID), ("-1:8", PARAM_INVALID), ("a:b", PARAM_INVALID),
                                           (":", PARAM_INVALID), ("4: 8", PARAM_INVALID),
                                           ("99999999999999999999:8", PARAM_INVALID),
                                           ("4294967295:4294967295", PARAM_INVALID)])
def test_3_1_grammar_of_buffer_pool(daemon, worker, value, status):
    client = worker(daemon())
    for key in ("BufferPool", "adxl.BufferPool"):
        assert client.run("hixl.Hixl().initialize('127.0.0.1', {key: value})", key=key, value=value) == status
        if status != SUCCESS:
            assert "BufferPool" in client.run("hixl.last_error()")
