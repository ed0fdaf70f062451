"""Contract 1.9, asynchronous transfers and the query that reports and releases them."""

import pytest
from harness.peer import ALREADY_CONNECTED, FAILED, NOT_CONNECTED, PARAM_INVALID, SUCCESS, UNSUPPORTED

KIB, MIB = 1 << 10, 1 << 20
HIXL_ENGINE = {"LocalCommRes": '{"version":"1.3"}'}
HELPERS = """
import time
def submit(count, piece, user_data=0):
    made = []
    for i in range(count):
        args = hixl.TransferArgs()
        args.user_data = user_data + i
        made.append(engine.transfer_async(remote, hixl.TransferOp.READ, descriptors([piece]), args))
    assert all(status == 0 and request for status, request in made), (made, hixl.last_error())
    return [request for _, request in made]

def all_states(**limits):
    status, results = engine.get_all_transfer_status(hixl.GetTransferStatusArgs(**limits))
    return [status, [[r.req, r.user_data, r.status.name] for r in results]]

def poll(request):
    deadline = time.monotonic() + 30
    state = hixl.TransferStatus.WAITING
    while state == hixl.TransferStatus.WAITING and time.monotonic() < deadline:
        status, state = engine.get_transfer_status(request)
    return [status, state.name]

def drain(expected):
    ends = []
    deadline = time.monotonic() + 30
    while len(ends) < expected and time.monotonic() < deadline:
        ends += all_states(skip_waiting=True)[1]
    return ends
"""


@pytest.fixture
def pair(nodes_of_peers, peer):
    """Factory of two connected peers with 1 MiB each."""

    def make(options=None, connected=True):
        here, there = peer(nodes_of_peers[0], options=options), peer(nodes_of_peers[1])
        local, remote = here.memory(MIB), there.memory(MIB, seed=1)
        here.run(HELPERS, remote=there.engine, piece=[local.address, remote.address, 64 * KIB])
        if connected:
            assert here.connect(there.engine) == SUCCESS
        return here, there

    return make


def test_1_9_requests_are_unique_and_not_null_while_outstanding(pair):
    here, _ = pair()
    assert here.run("requests = submit(64, piece)\n[len(set(requests)), 0 in requests]") == [64, False]


def test_1_9_a_terminal_state_is_told_once(pair):
    here, _ = pair()
    assert here.run("(request,) = submit(1, piece)\n[poll(request), *poll(request)]") == \
        [[SUCCESS, "COMPLETED"], PARAM_INVALID, "FAILED"]


def test_1_3_a_null_request_is_failed_and_an_unknown_one_param_invalid(pair):
    here, _ = pair()
    code = "[[s, state.name] for s, state in map(engine.get_transfer_status, (0, 12345))]"
    assert here.run(code) == [[FAILED, "FAILED"], [PARAM_INVALID, "FAILED"]]


def test_1_9_after_disconnect_requests_of_that_peer_are_unknown(pair):
    here, there = pair()
    assert here.run("""
requests = submit(16, piece)
ended = engine.disconnect(remote)
[ended, sorted({(s, state.name) for s, state in map(engine.get_transfer_status, requests)})]
""") == [SUCCESS, [[PARAM_INVALID, "FAILED"]]]


def test_1_9_user_data_comes_back_with_the_batch_query_in_order_of_submission(pair):
    here, _ = pair(HIXL_ENGINE)
    ends = here.run("requests = submit(20, piece, user_data=100)\n[requests, drain(20)]")
    requests, results = ends
    assert sorted(results) == sorted([[r, 100 + i, "COMPLETED"] for i, r in enumerate(requests)])
    assert here.run("all_states()") == [SUCCESS, []], "told once"
    assert here.run("poll(requests[0])") == [PARAM_INVALID, "FAILED"], "and released"


def test_1_9_the_batch_query_keeps_to_its_limit_and_leaves_the_rest(pair):
    here, _ = pair(HIXL_ENGINE)
    assert here.run("all_states(max_query_count=0)") == [SUCCESS, []]
    assert here.run("""
requests = submit(10, piece)
first = all_states(max_query_count=3)[1]
len(first)
""") == 3
    taken = here.run("[r for r, _, state in first if state != 'WAITING']")
    rest = here.run("[r for r, _, state in drain(10 - taken)]", taken=len(taken))
    assert len(rest) == 10 - len(taken) and not set(rest) & set(taken)


def test_1_9_a_query_of_nothing_is_success_and_empty(pair):
    here, _ = pair(HIXL_ENGINE)
    assert here.run("all_states()") == [SUCCESS, []]
    assert here.run("all_states(max_query_count=5, skip_waiting=True)") == [SUCCESS, []]


def test_1_9_the_batch_query_is_unsupported_by_the_other_kinds(pair):
    here, _ = pair()
    assert here.run("all_states()") == [UNSUPPORTED, []]


def test_1_9_a_failed_request_is_failed_in_the_batch_query_and_released(pair):
    here, there = pair(HIXL_ENGINE)
    status = there.run("engine.register_mem(hixl.MemDesc(4096, 65536), hixl.MemType.MEM_HOST)[0]")
    assert status == SUCCESS, "any range may be registered; reading it fails"
    ends = here.run("""
good = submit(1, piece)
bad = submit(1, [piece[0], 4096, 65536])
ends = drain(2)
[good, bad, ends, all_states()]
""")
    good, bad, told, again = ends
    assert [bad[0], 0, "FAILED"] in told
    assert {r for r, _, _ in told} == {good[0], bad[0]}
    assert again == [SUCCESS, []]


def test_b25_20_parallel_submissions_on_one_link_complete(pair):
    here, _ = pair()
    assert here.run("""
import threading
made, ends = [], []
def run():
    request = submit(1, piece)[0]
    made.append(request)
    ends.append(poll(request))
threads = [threading.Thread(target=run) for _ in range(20)]
[t.start() for t in threads]
[t.join() for t in threads]
[len(set(made)), sorted(set(map(tuple, ends)))]
""") == [20, [[SUCCESS, "COMPLETED"]]]


def test_1_12_auto_connect_links_on_demand_and_a_failure_disconnects(pair):
    here, there = pair({"AutoConnect": "1"}, connected=False)
    assert here.run("poll(submit(1, piece)[0])") == [SUCCESS, "COMPLETED"]
    assert here.connect(there.engine) == ALREADY_CONNECTED, "after an implicit connect"
    assert there.run("engine.register_mem(hixl.MemDesc(4096, 65536), hixl.MemType.MEM_HOST)[0]") == SUCCESS
    bad = here.run("""
status, request = engine.transfer_async(remote, hixl.TransferOp.READ,
                                        descriptors([[piece[0], 4096, 65536]]))
[status, poll(request) if request else None]
""")
    assert bad == [SUCCESS, [SUCCESS, "FAILED"]]
    assert here.run("engine.disconnect(remote)") == NOT_CONNECTED, "it has been disconnected already"
    assert here.run("poll(submit(1, piece)[0])") == [SUCCESS, "COMPLETED"], "and the next one links again"


def test_1_12_without_auto_connect_nothing_links_by_itself(pair):
    here, _ = pair({"AutoConnect": "0"}, connected=False)
    assert here.run("""
list(engine.transfer_async(remote, hixl.TransferOp.READ, descriptors([piece])))
""") == [NOT_CONNECTED, 0]


def test_1_12_an_explicit_connect_before_stays_legal(pair):
    here, there = pair({"AutoConnect": "1"})
    assert here.run("poll(submit(1, piece)[0])") == [SUCCESS, "COMPLETED"]
    assert here.run("engine.disconnect(remote)") == SUCCESS
    assert here.run("engine.disconnect(remote)") == NOT_CONNECTED
