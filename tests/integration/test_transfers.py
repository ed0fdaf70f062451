"""Reads, writes and their status, between two client processes."""

import random
import zlib

import pytest
from harness.peer import PARAM_INVALID, SUCCESS, free_port

MIB = 1 << 20
KINDS = ["pool", "plain"]


def shuffled_pieces(local, remote, count, size, stride):
    """`count` pieces of `size` bytes at multiples of `stride`, each side in its own order."""
    order = random.Random(5)
    sources, targets = list(range(count)), list(range(count))
    order.shuffle(sources)
    order.shuffle(targets)
    return [(local.address + t * stride, remote.address + s * stride, size)
            for t, s in zip(targets, sources)]


@pytest.mark.parametrize("kind", KINDS)
def test_read_brings_the_remote_bytes_here(two_peers, kind):
    here, there = two_peers
    local, remote = here.memory(8 * MIB, kind), there.memory(8 * MIB, kind, seed=1)
    assert here.connect(there.engine) == SUCCESS
    assert here.transfer(there.engine, "READ", [(local.address, remote.address, 8 * MIB)]) == SUCCESS
    assert local.crc() == remote.crc()


@pytest.mark.parametrize("kind", KINDS)
def test_write_puts_the_local_bytes_there(two_peers, kind):
    here, there = two_peers
    local, remote = here.memory(8 * MIB, kind, seed=2), there.memory(8 * MIB, kind)
    before = local.crc()
    assert here.connect(there.engine) == SUCCESS
    assert here.transfer(there.engine, "WRITE", [(local.address, remote.address, 8 * MIB)]) == SUCCESS
    assert remote.crc() == before == local.crc()


def test_bytes_around_the_blocks_stay_as_they_were(two_peers):
    here, there = two_peers
    stride, size, count = 5000, 4096, 64
    local, remote = here.memory(stride * count, seed=3), there.memory(stride * count, seed=4)
    gaps = "[crc(name, i * stride + size, stride - size) for i in range(count)]"
    values = {"stride": stride, "size": size, "count": count}
    before = here.run(gaps, name=local.name, **values)
    pieces = shuffled_pieces(local, remote, count, size, stride)
    assert here.connect(there.engine) == SUCCESS
    assert here.transfer(there.engine, "READ", pieces) == SUCCESS
    assert here.run(gaps, name=local.name, **values) == before
    for target, source, length in pieces:
        assert local.crc(target - local.address, length) == remote.crc(source - remote.address, length)


@pytest.mark.parametrize("op", ["READ", "WRITE"])
def test_512_scattered_blocks_of_16_kib_in_one_call(two_peers, op):
    here, there = two_peers
    block, count = 16 * 1024, 512
    local, remote = here.memory(block * count, seed=5), there.memory(block * count, seed=6)
    assert here.connect(there.engine) == SUCCESS
    pieces = shuffled_pieces(local, remote, count, block, block)
    assert here.transfer(there.engine, op, pieces) == SUCCESS
    crcs = "[crc(name, offset, length) for offset, length in ranges]"
    mine = here.run(crcs, name=local.name, ranges=[(l - local.address, n) for l, _, n in pieces])
    theirs = there.run(crcs, name=remote.name, ranges=[(r - remote.address, n) for _, r, n in pieces])
    assert mine == theirs


def test_odd_sizes_and_addresses(two_peers):
    here, there = two_peers
    local, remote = here.memory(MIB), there.memory(MIB, seed=7)
    assert here.connect(there.engine) == SUCCESS
    for offset, length in [(1, 1), (3, 7), (4095, 4098), (65537, 131071)]:
        piece = (local.address + offset, remote.address + offset, length)
        assert here.transfer(there.engine, "READ", [piece]) == SUCCESS
        assert local.crc(offset, length) == remote.crc(offset, length)


def test_a_transfer_may_span_adjacent_registrations(two_peers):
    here, there = two_peers
    local = here.memory(2 * MIB)
    remote = there.memory(2 * MIB, seed=8, register=False)
    for half in (0, MIB):
        code = "engine.register_mem(hixl.MemDesc(address, length), hixl.MemType.MEM_HOST)[0]"
        assert there.run(code, address=remote.address + half, length=MIB) == SUCCESS
    assert here.connect(there.engine) == SUCCESS
    piece = (local.address, remote.address + MIB // 2, MIB)
    assert here.transfer(there.engine, "READ", [piece]) == SUCCESS
    assert local.crc(0, MIB) == remote.crc(MIB // 2, MIB)


def test_async_transfers_complete_and_report_their_end_once(two_peers):
    here, there = two_peers
    count, size = 20, 256 * 1024
    local, remote = here.memory(count * size), there.memory(count * size, seed=9)
    assert here.connect(there.engine) == SUCCESS
    submitted = here.run("""
requests = []
for i in range(count):
    piece = hixl.TransferOpDesc(local + i * size, remote + i * size, size)
    requests.append(engine.transfer_async(peer, hixl.TransferOp.READ, [piece]))
requests
""", count=count, size=size, local=local.address, remote=remote.address, peer=there.engine)
    assert all(status == SUCCESS and request != 0 for status, request in submitted)
    assert len({request for _, request in submitted}) == count
    ends = here.run("""
import time
deadline = time.monotonic() + 30
ends = []
for _, request in requests:
    state = hixl.TransferStatus.WAITING
    while state == hixl.TransferStatus.WAITING and time.monotonic() < deadline:
        status, state = engine.get_transfer_status(request)
    ends.append((status, state.name))
ends
""")
    assert ends == [[SUCCESS, "COMPLETED"]] * count
    assert local.crc() == remote.crc()
    again = here.run("[(s, int(t)) for s, t in [engine.get_transfer_status(requests[0][1])]][0]")
    assert again == [PARAM_INVALID, 3]


def test_both_sides_read_from_each_other_at_once(two_peers):
    here, there = two_peers
    size, rounds = 16 * MIB, 4
    mine, into_mine = here.memory(size, seed=10), here.memory(size)
    theirs, into_theirs = there.memory(size, seed=11), there.memory(size)
    assert here.connect(there.engine) == SUCCESS
    assert there.connect(here.engine) == SUCCESS
    code = """
[engine.transfer_sync(remote, hixl.TransferOp.READ, descriptors(pieces), 30000) for _ in range(rounds)]
"""
    here.worker.start(code, remote=there.engine, rounds=rounds,
                      pieces=[(into_mine.address, theirs.address, size)])
    there.worker.start(code, remote=here.engine, rounds=rounds,
                       pieces=[(into_theirs.address, mine.address, size)])
    assert here.worker.result() == there.worker.result() == [SUCCESS] * rounds
    assert into_mine.crc() == theirs.crc()
    assert into_theirs.crc() == mine.crc()


def test_memory_registered_after_connect_is_usable(two_peers):
    here, there = two_peers
    local = here.memory(MIB)
    assert here.connect(there.engine) == SUCCESS
    late = there.memory(MIB, seed=12)
    later = here.memory(MIB)
    piece = (later.address, late.address, MIB)
    assert here.transfer(there.engine, "READ", [piece]) == SUCCESS
    assert later.crc() == late.crc() != local.crc()


def test_two_engines_of_one_process_reach_each_other(daemon, peer):
    node = daemon()
    here = peer(node)
    local = here.memory(MIB)
    result = here.run("""
other = hixl.Hixl()
statuses = [other.initialize(name)]
memory = other.allocate(size, mem_type=hixl.MemType.MEM_HOST)
memoryview(memory).cast('B')[:size] = bytes(range(256)) * (size // 256)
statuses.append(other.register_mem(hixl.MemDesc(memory.address, size), hixl.MemType.MEM_HOST)[0])
statuses.append(engine.connect(name))
statuses.append(engine.transfer_sync(name, hixl.TransferOp.READ,
                                     descriptors([(local, memory.address, size)]), 10000))
other.finalize()
statuses
""", name=f"127.0.0.1:{free_port()}", size=MIB, local=local.address)
    assert result == [SUCCESS] * 4
    assert local.crc() == zlib.crc32(bytes(range(256)) * (MIB // 256))
