"""Contract 1.6: registration of memory."""

import pytest
from harness.peer import FAILED, NOT_CONNECTED, PARAM_INVALID, SUCCESS


def test_rule_1_6_handle_ok(run):
    assert run("e = engine()\nhandles = [register(e, memory(64), 64) for _ in range(50)]\n"
               "[0 in handles, len(set(handles))]") == [False, 50]


def test_rule_1_6_same_range_ok(run):
    assert run("""
e = engine()
address = memory(4096)
first, second = register(e, address, 4096), register(e, address, 4096)
# No count is kept: one deregistration releases it.
[first == second, e.deregister_mem(first), e.register_mem(hixl.MemDesc(address + 1, 4095), HOST)[0]]
""") == [True, SUCCESS, SUCCESS]


@pytest.mark.parametrize("offset, length", [(0, 4095), (0, 4097), (1, 4095), (1, 4096), (-1, 2), (-1, 5000),
                                            (4095, 1), (4095, 100), (100, 10)])
def test_rule_1_6_overlap_bad(run, offset, length):
    assert run("""
e = engine()
address = memory(16384) + 4096
register(e, address, 4096)
e.register_mem(hixl.MemDesc(address + offset, length), HOST)
""", offset=offset, length=length) == [PARAM_INVALID, 0]


def test_rule_1_6_overlap_ok(run):
    # Ranges that touch do not overlap, nor do ranges of different types.
    assert run("""
e = engine()
address = memory(16384) + 4096
register(e, address, 4096)
[e.register_mem(hixl.MemDesc(address + 4096, 16), HOST)[0], e.register_mem(hixl.MemDesc(address - 16, 16), HOST)[0],
 e.register_mem(hixl.MemDesc(address + 8, 4096), DEVICE)[0]]
""") == [SUCCESS] * 3


def test_rule_1_6_length_zero_bad(run):
    assert run("engine().register_mem(hixl.MemDesc(memory(16), 0), HOST)") == [PARAM_INVALID, 0]


@pytest.mark.parametrize("address, length", [(1, 1), (1234, 10), (0x7000_0000_0000, 1 << 40)])
@pytest.mark.parametrize("kind", ["HOST", "DEVICE"])
def test_rule_1_6_arbitrary_pointers_ok(run, address, length, kind):
    # Nothing is touched, so the memory need not exist.
    assert run(f"engine().register_mem(hixl.MemDesc(a, n), {kind})[0]", a=address, n=length) == SUCCESS


def test_rule_1_6_arbitrary_pointers_bad(run):
    # A transfer that touches it fails.
    assert run("""
here, there, name, local, remote = pair()
register(here, 1234, 10)
here.transfer_sync(name, READ, [piece(1234, remote, 10)])
""") not in (SUCCESS, PARAM_INVALID, NOT_CONNECTED)


@pytest.mark.parametrize("kind", ["HOST", "DEVICE"])
def test_rule_1_6_pageable_memory_ok(run, kind):
    assert run(f"""
here, there, name, local, remote = pair()
a, b = memory(100), memory(100, 9)
register(here, a, 100, {kind})
register(there, b, 100, {kind})
here.disconnect(name)
[here.connect(name), here.transfer_sync(name, READ, [piece(a, b, 100)]), content(a, 100) == bytes([9]) * 100]
""") == [SUCCESS, SUCCESS, True]


def test_rule_1_6_visibility_ok(run):
    # Generous where upstream asks for a reconnect: memory registered later is usable at once.
    assert run("""
here, there, name, local, remote = pair()
a, b = memory(64), memory(64, 5)
register(here, a, 64)
register(there, b, 64)
[here.transfer_sync(name, READ, [piece(a, b, 64)]), content(a, 64) == bytes([5]) * 64]
""") == [SUCCESS, True]


@pytest.mark.parametrize("side", ["here", "there"])
def test_rule_1_6_visibility_bad(run, side):
    # What was released is out of reach, with the old link and with a new one.
    assert run(f"""
here, there, name, local, remote = pair()
a, b = memory(64), memory(64)
handles = {{'here': register(here, a, 64), 'there': register(there, b, 64)}}
assert outcome(here, name, READ, [piece(a, b, 64)]) == 'COMPLETED'
assert {side}.deregister_mem(handles['{side}']) == 0
def refused():
    # With relay an unregistered range is no error by itself; asynchronous transfers never relay.
    return outcome(here, name, READ, [piece(a, b, 64)]) == hixl.PARAM_INVALID
[refused(), here.disconnect(name), here.connect(name), refused()]
""") == [True, SUCCESS, SUCCESS, True]


@pytest.mark.parametrize("offset, length", [(0, 1), (1, 4094), (4095, 1), (0, 4096)])
def test_rule_1_6_sub_ranges_ok(run, offset, length):
    assert run("""
here, there, name, local, remote = pair()
[here.transfer_sync(name, READ, [piece(local + o, remote + o, n)]),
 content(local, 4096) == bytes(o) + bytes([7]) * n + bytes(4096 - o - n)]
""", o=offset, n=length) == [SUCCESS, True]


def test_rule_1_6_sub_ranges_bad(run):
    assert run("""
here, there, name, local, remote = pair({'LocalCommRes': '{"version":"1.3"}'})
[here.transfer_sync(name, READ, [piece(local + o, remote, n)]) for o, n in ((0, 4097), (1, 4096), (4096, 1))]
""") == [PARAM_INVALID] * 3


def test_rule_1_6_adjacent_ok(run):
    assert run("""
here, there, name, local, remote = pair({'LocalCommRes': '{"version":"1.3"}'})
a, b = memory(300), memory(300, 4)
for at, n in ((0, 100), (100, 50), (150, 150)):
    register(here, a + at, n)
register(there, b, 299)
register(there, b + 299, 1)
[here.transfer_sync(name, READ, [piece(a, b, 300)]), content(a, 300) == bytes([4]) * 300]
""") == [SUCCESS, True]


def test_rule_1_6_adjacent_bad(run):
    # One byte between them is not registered.
    assert run("""
here, there, name, local, remote = pair({'LocalCommRes': '{"version":"1.3"}'})
a = memory(300)
register(here, a, 100)
register(here, a + 101, 199)
here.transfer_sync(name, READ, [piece(a, remote, 300)])
""") == PARAM_INVALID


def test_rule_1_6_many_ok(run):
    assert run("""
here, there, name, local, remote = pair()
a, b = memory(4096 * 16), memory(4096 * 16, 2)
handles = {register(here, a + 16 * i, 16) for i in range(4096)}
register(there, b, 4096 * 16)
pieces = [piece(a + 16 * i, b + 16 * i, 16) for i in range(4096)]
[len(handles), here.transfer_sync(name, READ, pieces, 10000), content(a, 65536) == bytes([2]) * 65536]
""") == [4096, SUCCESS, True]


@pytest.mark.parametrize("calls, expected", [
    ("[e.deregister_mem(0x100)]", [SUCCESS]),
    ("[e.deregister_mem(0)]", [PARAM_INVALID]),
])
def test_rule_1_6_unknown_handle_ok(run, calls, expected):
    assert run(f"e = engine()\n{calls}") == expected


def test_rule_1_6_handle_of_another_engine_ok(run):
    assert run("""
a, b = engine(), engine()
handle = register(a, memory(64), 64)
# Unknown to the other engine, so ignored, and still known to its own.
[b.deregister_mem(handle), register(a, kept and ctypes.addressof(kept[-1]), 64) == handle]
""") == [SUCCESS, True]


def test_rule_1_6_crossing_types_bad(run):
    assert run("hixl.Hixl().register_mem(hixl.MemDesc(1, 1), HOST)") == [FAILED, 0]
