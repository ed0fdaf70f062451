"""What a client may do wrong through the public API: the contract's code, and the daemon goes on."""

import pytest
from harness.peer import (ALREADY_CONNECTED, FAILED, NOT_CONNECTED, PARAM_INVALID, SUCCESS, TIMEOUT,
                          engine_id, free_port)

MIB = 1 << 20
REGISTER = "engine.register_mem(hixl.MemDesc(address, length), hixl.MemType.MEM_HOST)"


def fenced(peer, nbytes, seed=None):
    """Registered memory whose neighbours are not: regions that touch may be used as one."""
    fence = 64 * 1024
    memory = peer.memory(nbytes + 2 * fence, seed=seed, register=False)
    status, memory.handle = peer.run(REGISTER, address=memory.address + fence, length=nbytes)
    assert status == SUCCESS
    memory.address, memory.nbytes = memory.address + fence, nbytes
    memory.crc = lambda: peer.run(f"crc({memory.name!r})")  # the fences included
    return memory


@pytest.fixture
def connected(two_strict_peers):
    """Two connected peers with 1 MiB each; afterwards a correct transfer must still work."""
    here, there = two_strict_peers
    local, remote = fenced(here, MIB, seed=1), fenced(there, MIB, seed=1)
    assert here.connect(there.engine) == SUCCESS
    yield here, there, local, remote
    good = (local.address, remote.address, MIB)
    if here.transfer(there.engine, "READ", [good]) != SUCCESS:
        # A refused batch may have closed the channel (contract 1.8); a new one must then work.
        here.run("engine.disconnect(remote)", remote=there.engine)
        assert here.connect(there.engine) == SUCCESS
        assert here.transfer(there.engine, "READ", [good]) == SUCCESS
    assert local.crc() == remote.crc()


@pytest.mark.parametrize("op", ["READ", "WRITE"])
@pytest.mark.parametrize("side", ["local", "remote"])
def test_one_byte_beyond_a_region_is_refused_and_nothing_moves(connected, op, side):
    here, there, local, remote = connected
    larger_here, larger_there = fenced(here, 2 * MIB), fenced(there, 2 * MIB)
    mine, theirs = (local, larger_there) if side == "local" else (larger_here, remote)
    before = mine.crc(), theirs.crc()
    for start, length in [(0, MIB + 1), (MIB - 1, 2), (MIB, 1)]:
        piece = (mine.address + start, theirs.address + start, length)
        assert here.transfer(there.engine, op, [piece]) in (PARAM_INVALID, FAILED)
    assert (mine.crc(), theirs.crc()) == before


@pytest.mark.parametrize("side", ["local", "remote"])
def test_unregistered_addresses_are_refused(connected, side):
    here, there, local, remote = connected
    piece = {"local": (0x1000, remote.address, 64), "remote": (local.address, 0x1000, 64)}[side]
    assert here.transfer(there.engine, "READ", [piece]) in (PARAM_INVALID, FAILED)


@pytest.mark.parametrize("side", ["local", "remote"])
def test_address_plus_length_overflow_is_refused(connected, side):
    here, there, local, remote = connected
    top = (1 << 64) - 4096
    piece = {"local": (top, remote.address, 8192), "remote": (local.address, top, 8192)}[side]
    assert here.transfer(there.engine, "READ", [piece]) in (PARAM_INVALID, FAILED)
    huge = (local.address, remote.address, (1 << 64) - 1)
    assert here.transfer(there.engine, "READ", [huge]) in (PARAM_INVALID, FAILED)


def test_a_bad_block_in_the_middle_fails_the_whole_batch(connected):
    here, there, local, remote = connected
    pieces = [(local.address + i * 4096, remote.address + i * 4096, 4096) for i in range(64)]
    pieces[31] = (local.address, remote.address + MIB, 4096)
    assert here.transfer(there.engine, "READ", pieces) in (PARAM_INVALID, FAILED)


def test_empty_lists_zero_lengths_null_addresses_and_bad_timeouts(connected):
    here, there, local, remote = connected
    good = (local.address, remote.address, 64)
    assert here.transfer(there.engine, "READ", []) == PARAM_INVALID
    assert here.transfer(there.engine, "READ", [(local.address, remote.address, 0)]) == PARAM_INVALID
    assert here.transfer(there.engine, "READ", [(0, remote.address, 64)]) == PARAM_INVALID
    assert here.transfer(there.engine, "READ", [(local.address, 0, 64)]) == PARAM_INVALID
    assert here.transfer(there.engine, "READ", [good], timeout_ms=0) == PARAM_INVALID
    assert here.transfer(there.engine, "READ", [good], timeout_ms=-1) == PARAM_INVALID


def test_memory_of_an_engine_without_a_channel_stays_out_of_reach(connected, peer):
    here, there, local, remote = connected
    stranger = peer(there.daemon, engine_id(there.daemon, 26077))
    secret = stranger.memory(8 * MIB, seed=5)
    # Addresses are each process's own: take a part that is not by chance also the peer's.
    start = next(secret.address + offset for offset in (0, 4 * MIB)
                 if abs(secret.address + offset - remote.address) >= MIB)
    piece = (local.address, start, MIB)
    before = local.crc()
    assert here.transfer(there.engine, "READ", [piece]) in (PARAM_INVALID, FAILED)
    assert local.crc() == before
    assert here.transfer(stranger.engine, "READ", [piece]) == NOT_CONNECTED


def test_registration_refuses_null_overflow_zero_and_overlap(connected):
    here, _, local, _ = connected
    for address, length in [(0, 4096), ((1 << 64) - 1, 2), (0x10000, 0)]:
        assert here.run(REGISTER, address=address, length=length) == [PARAM_INVALID, 0]
    overlap = here.run(REGISTER, address=local.address + 4096, length=MIB)
    assert overlap == [PARAM_INVALID, 0]
    assert here.run(REGISTER, address=local.address, length=MIB) == [SUCCESS, local.handle]


def test_memory_that_does_not_exist_can_be_registered_and_fails_when_used(connected):
    here, there, local, _ = connected
    status, handle = there.run(REGISTER, address=1234, length=10)
    assert status == SUCCESS and handle != 0
    assert here.transfer(there.engine, "READ", [(local.address, 1234, 10)]) not in (SUCCESS, TIMEOUT)


def test_a_released_region_is_out_of_reach(connected):
    here, there, local, _ = connected
    gone = there.memory(MIB, seed=6)
    piece = (local.address, gone.address, 4096)
    assert here.transfer(there.engine, "READ", [piece]) == SUCCESS
    assert there.run("engine.deregister_mem(handle)", handle=gone.handle) == SUCCESS
    assert here.transfer(there.engine, "READ", [piece]) in (PARAM_INVALID, FAILED)


def test_deregistering_twice_null_and_unknown_handles(connected):
    here, _, _, _ = connected
    deregister = "engine.deregister_mem(handle)"
    assert here.run(deregister, handle=0) == PARAM_INVALID
    assert here.run(deregister, handle=0x100) == SUCCESS


@pytest.mark.parametrize("engine", ["ad.0.0.1:26200", "localhost:1", "127.0.0.1:70000", "::1:26000",
                                    "[::1", "127.0.0.1:port", "", " 127.0.0.1:1", "1.2.3"])
def test_malformed_engine_ids_are_refused(daemon, worker, engine):
    client = worker(daemon())
    code = "(lambda e: (e.initialize(name), e.initialize('127.0.0.1')))(hixl.Hixl())"
    assert client.run(code, name=engine) == [PARAM_INVALID, SUCCESS]


def test_a_taken_port_is_an_error_and_the_owner_serves_on(daemon, peer, worker):
    node = daemon()
    owner = peer(node)
    memory = owner.memory(4096, seed=1)
    assert worker(node).run("hixl.Hixl().initialize(name)", name=owner.engine) in (FAILED, PARAM_INVALID)
    other = peer(node)
    local = other.memory(4096)
    assert other.connect(owner.engine) == SUCCESS
    assert other.transfer(owner.engine, "READ", [(local.address, memory.address, 4096)]) == SUCCESS


def test_connecting_to_nobody_fails_fast(daemon, peer):
    here = peer(daemon())
    code = """
import time
start = time.monotonic()
status = engine.connect(remote, timeout_in_millis=5000)
(status, time.monotonic() - start)
"""
    status, seconds = here.run(code, remote=f"127.0.0.1:{free_port()}")
    assert status == FAILED
    assert seconds < 4.5, "a refused connection must not wait for the deadline"


def test_connecting_to_oneself_twice_and_badly(two_peers):
    here, there = two_peers
    assert here.connect(here.engine) == PARAM_INVALID
    assert here.connect("not-an-address") == PARAM_INVALID
    assert here.connect(there.engine, timeout_ms=0) == PARAM_INVALID
    assert here.connect(there.engine) == SUCCESS
    assert here.connect(there.engine) == ALREADY_CONNECTED
    disconnect = "engine.disconnect(remote)"
    assert here.run(disconnect, remote=there.engine) == SUCCESS
    assert here.run(disconnect, remote=there.engine) == NOT_CONNECTED


def test_transfers_without_a_channel_are_not_connected(two_peers):
    here, there = two_peers
    local, remote = here.memory(4096), there.memory(4096)
    piece = (local.address, remote.address, 4096)
    assert here.transfer(there.engine, "READ", [piece]) == NOT_CONNECTED
    code = "engine.transfer_async(remote, hixl.TransferOp.READ, descriptors([piece]))"
    assert here.run(code, remote=there.engine, piece=piece) == [NOT_CONNECTED, 0]


def test_status_of_unknown_requests(daemon, peer):
    here = peer(daemon())
    status_of = "[(s, int(t)) for s, t in [engine.get_transfer_status(request)]][0]"
    assert here.run(status_of, request=0) == [FAILED, 3]
    assert here.run(status_of, request=0xDEAD) == [PARAM_INVALID, 3]


def test_calls_before_initialize_and_after_finalize_fail(daemon, worker):
    client = worker(daemon())
    calls = """
(engine.connect('127.0.0.1:1'), engine.disconnect('127.0.0.1:1'), engine.deregister_mem(1),
 engine.register_mem(hixl.MemDesc(4096, 1), hixl.MemType.MEM_HOST),
 engine.transfer_sync('127.0.0.1:1', hixl.TransferOp.READ, [hixl.TransferOpDesc(1, 1, 1)]),
 engine.transfer_async('127.0.0.1:1', hixl.TransferOp.READ, [hixl.TransferOpDesc(1, 1, 1)]))
"""
    expected = [FAILED, FAILED, FAILED, [FAILED, 0], FAILED, [FAILED, 0]]
    assert client.run("engine = hixl.Hixl()\n" + calls.strip()) == expected
    assert client.run("engine.initialize('127.0.0.1')") == SUCCESS
    assert client.run("engine.finalize()\nengine.finalize()\n" + calls.strip()) == expected


@pytest.mark.parametrize("options", [{"InvalidOption": "x"}, {"AutoConnect": "2"},
                                     {"GlobalResourceConfig": "{not json"},
                                     {"GlobalResourceConfig": '{"connect_pool.thread_num":"0"}'}])
def test_bad_options_are_refused_and_a_corrected_retry_works(daemon, worker, options):
    client = worker(daemon())
    code = "engine = hixl.Hixl()\n(engine.initialize('127.0.0.1', options), engine.initialize('127.0.0.1'))"
    assert client.run(code, options=options) == [PARAM_INVALID, SUCCESS]
