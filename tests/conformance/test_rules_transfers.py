"""Contract 1.8 and 1.9: transfers that wait and transfers that are asked about."""

import pytest
from harness.peer import FAILED, NOT_CONNECTED, PARAM_INVALID, SUCCESS

HIXL = "{'LocalCommRes': '{\"version\":\"1.3\"}'}"


@pytest.mark.parametrize("op", ["READ", "WRITE"])
@pytest.mark.parametrize("count, length", [(512, 16 << 10), (64, 256 << 10), (128, 128 << 10), (1, 16 << 20)])
def test_rule_1_8_batch_ok(run, op, count, length):
    assert run(f"""
here, there, name, local, remote = pair(nbytes=count * length)
source, target = (remote, local) if '{op}' == 'READ' else (local, remote)
ctypes.memset(target, 0, count * length)
for i in range(count):
    ctypes.memset(source + i * length, 1 + i % 255, length)
order = list(range(count))
order.reverse()
pieces = [piece(local + i * length, remote + i * length, length) for i in order]
[here.transfer_sync(name, {op}, pieces, 30000), content(target, count * length) == content(source, count * length)]
""", count=count, length=length) == [SUCCESS, True]


def test_rule_1_8_batch_bad(run):
    # One bad piece: nothing of the batch moves.
    assert run("""
here, there, name, local, remote = pair({'LocalCommRes': '{\"version\":\"1.3\"}'})
pieces = [piece(local, remote, 64), piece(local + 64, remote + 4090, 64)]
[here.transfer_sync(name, READ, pieces), content(local, 128) == bytes(128)]
""") == [PARAM_INVALID, True]


def test_rule_1_8_pieces_may_overlap_ok(run):
    assert run("""
here, there, name, local, remote = pair()
[here.transfer_sync(name, READ, [piece(local, remote, 64), piece(local + 32, remote, 64)]),
 content(local, 96) == bytes([7]) * 96]
""") == [SUCCESS, True]


@pytest.mark.parametrize("options", [HIXL, "{'BufferPool': '0:0'}"])
@pytest.mark.parametrize("side", ["local", "remote"])
def test_rule_1_8_unregistered_bad(run, options, side):
    outcome = run(f"""
here, there, name, local, remote = pair({options})
stray = memory(64)
where = {{'local': (stray, remote), 'remote': (local, stray)}}['{side}']
here.transfer_sync(name, READ, [piece(*where, 64)])
""")
    # The default engine without a pool may also call it a failure of the transport.
    assert outcome == PARAM_INVALID or ("BufferPool" in options and outcome == FAILED)


def test_rule_1_8_length_zero_bad(run):
    assert run("""
here, there, name, local, remote = pair()
here.transfer_sync(name, READ, [piece(local, remote, 16), piece(local, remote, 0)])
""") == PARAM_INVALID


def test_rule_1_8_goes_on_after_an_error_ok(run):
    assert run(f"""
here, there, name, local, remote = pair({HIXL})
[here.transfer_sync(name, READ, [piece(local, remote, 5000)]), here.transfer_sync(name, READ, [piece(local, remote, 16)])]
""") == [PARAM_INVALID, SUCCESS]


# --- 1.9 -------------------------------------------------------------------------------------------

def test_rule_1_9_handles_ok(run):
    assert run("""
here, there, name, local, remote = pair()
requests = [here.transfer_async(name, READ, [piece(local, remote, 64)])[1] for _ in range(100)]
[0 in requests, len(set(requests)), {ended(here, r) for r in requests} == {(0, 'COMPLETED')}]
""") == [False, 100, True]


def test_rule_1_9_told_once_bad(run):
    assert run("""
here, there, name, local, remote = pair()
_, request = here.transfer_async(name, READ, [piece(local, remote, 64)])
first = ended(here, request)
status, state = here.get_transfer_status(request)
[*first, status, state.name]
""") == [SUCCESS, "COMPLETED", PARAM_INVALID, "FAILED"]


def test_rule_1_9_after_disconnect_bad(run):
    assert run("""
here, there, name, local, remote = pair()
requests = [here.transfer_async(name, READ, [piece(local, remote, 64)])[1] for _ in range(3)]
here.disconnect(name)
[(status, state.name) for status, state in map(here.get_transfer_status, requests)]
""") == [[PARAM_INVALID, "FAILED"]] * 3


def test_rule_1_9_failed_is_told_bad(run):
    assert run("""
here, there, name, local, remote = pair()
register(there, 1234, 10)
status, request = here.transfer_async(name, READ, [piece(local, 1234, 10)])
[status, *ended(here, request), here.get_transfer_status(request)[0]]
""") == [SUCCESS, SUCCESS, "FAILED", PARAM_INVALID]


def test_rule_1_9_no_relay_bad(run):
    # Unregistered memory is an error for asynchronous transfers, buffer pool or not.
    assert run("""
here, there, name, local, remote = pair({'BufferPool': '4:8'})
[outcome(here, name, READ, [piece(memory(64), remote, 64)]), outcome(here, name, WRITE, [piece(local, memory(64), 64)])]
""") == [PARAM_INVALID, PARAM_INVALID]


def test_rule_1_9_user_data_ok(run):
    assert run(f"""
here, there, name, local, remote = pair({HIXL})
expected = []
for i in range(5):
    arguments = hixl.TransferArgs()
    arguments.user_data = 1000 + i
    expected.append((here.transfer_async(name, READ, [piece(local, remote, 64)], arguments)[1], 1000 + i))
got = []
def all_told():
    status, results = here.get_all_transfer_status(hixl.GetTransferStatusArgs(skip_waiting=True))
    got.extend((r.req, r.user_data, r.status.name) for r in results)
    return len(got) == 5
told = until(all_told)
[told, sorted(got) == sorted((r, u, 'COMPLETED') for r, u in expected), here.get_all_transfer_status()]
""") == [True, True, [SUCCESS, []]]


def test_rule_1_9_batch_query_ok(run):
    # In the order of submission, at most max_query_count at a time; the others stay.
    assert run(f"""
here, there, name, local, remote = pair({HIXL})
requests = [here.transfer_async(name, READ, [piece(local, remote, 64)])[1] for _ in range(10)]
def query(count, skip=True):
    status, results = here.get_all_transfer_status(hixl.GetTransferStatusArgs(count, skip))
    assert status == 0
    return [r.req for r in results]
nothing = query(0)
got = []
def more():
    part = query(3)
    assert len(part) <= 3
    got.extend(part)
    return len(got) == 10
[nothing, until(more), got == requests, query(100)]
""") == [[], True, True, []]


def test_rule_1_9_batch_query_bad(run):
    # A failed request is told as such and released with the terminal ones.
    assert run(f"""
here, there, name, local, remote = pair({HIXL})
register(there, 1234, 10)
good = here.transfer_async(name, READ, [piece(local, remote, 64)])[1]
bad = here.transfer_async(name, READ, [piece(local, 1234, 10)])[1]
states = {{}}
def told():
    status, results = here.get_all_transfer_status(hixl.GetTransferStatusArgs(skip_waiting=True))
    states.update((r.req, r.status.name) for r in results)
    return len(states) == 2
[until(told), states[good], states[bad], here.get_all_transfer_status()]
""") == [True, "COMPLETED", "FAILED", [SUCCESS, []]]


def test_rule_1_9_twenty_at_once_ok(run):
    assert run("""
here, there, name, local, remote = pair(nbytes=20 << 16)
requests = [here.transfer_async(name, READ, [piece(local + (i << 16), remote + (i << 16), 1 << 16)])[1] for i in range(20)]
[{ended(here, r) for r in requests} == {(0, 'COMPLETED')}, content(local, 20 << 16) == bytes([7]) * (20 << 16)]
""") == [True, True]


def test_rule_1_9_another_engines_request_bad(run):
    assert run("""
here, there, name, local, remote = pair()
_, request = here.transfer_async(name, READ, [piece(local, remote, 64)])
other = engine()
foreign = other.get_transfer_status(request)
[foreign[0], foreign[1].name, *ended(here, request)]
""") == [PARAM_INVALID, "FAILED", SUCCESS, "COMPLETED"]


def test_rule_1_9_without_link_bad(run):
    assert run("engine().transfer_async('127.0.0.1:19999', READ, [piece(1, 1, 1)])") == [NOT_CONNECTED, 0]
