"""Properties over arguments and options: never a crash, never a hang, a code of the contract, a named field."""

import time

import pytest

hypothesis = pytest.importorskip("hypothesis")
from harness.peer import (FAILED, NOT_CONNECTED, PARAM_INVALID, RESOURCE_EXHAUSTED, SUCCESS,  # noqa: E402
                          TIMEOUT)
from hypothesis import HealthCheck, given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

# One daemon and its clients serve all examples of a test: what one leaves behind meets the next.
MANY = settings(max_examples=80, deadline=None, derandomize=True,
                suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
INT32 = st.integers(-2**31, 2**31 - 1)
UINT64 = st.integers(0, 2**64 - 1) | st.sampled_from([0, 1, 2**63, 2**64 - 1, 4096])
TEXT = st.text(st.characters(blacklist_categories=["Cs"]), max_size=40)
LONG = st.builds(lambda text, times: text * times, TEXT, st.sampled_from([1, 1, 1, 30, 1025]))


@pytest.fixture
def pair(daemon, peer):
    """Two connected engines that transfer registered memory only."""
    node = daemon()
    strict = {"BufferPool": "0:0"}
    here, there = peer(node, options=strict), peer(node, options=strict)
    assert here.connect(there.engine) == SUCCESS
    return here, there


def until_nul(text):
    return text.split("\0", 1)[0]


@MANY
@given(name=LONG, text=LONG, ms=INT32 | st.sampled_from([0, 1, 1000]))
def test_notifies_arrive_as_they_are_or_are_refused_by_the_rule(pair, name, text, ms):
    here, there = pair
    status = here.run("engine.send_notify(remote, hixl.NotifyDesc(name, text), ms)", remote=there.engine,
                      name=name, text=text, ms=ms)
    sent = [until_nul(name), until_nul(text)]
    too_long = [len(part.encode()) > 1024 for part in sent]
    if too_long[0] or ms <= 0 or too_long[1]:
        assert status == PARAM_INVALID
        named = "name" if too_long[0] else "timeout" if ms <= 0 else "message"
        assert named in here.run("hixl.last_error()")
    elif ms == 1:
        assert status == TIMEOUT
    else:
        # A few milliseconds may really be too little on a loaded machine.
        assert status in ({SUCCESS} if ms >= 500 else {SUCCESS, TIMEOUT})
    arrived = there.run("[[n.name, n.notify_msg] for n in engine.get_notifies()[1]]")
    if status == SUCCESS:
        assert arrived == [sent]
    elif status == PARAM_INVALID:
        assert arrived == []


@MANY
@given(pieces=st.lists(st.tuples(UINT64, UINT64, UINT64), max_size=5),
       op=st.sampled_from(["READ", "WRITE"]), ms=st.sampled_from([-1, 0, 1, 2000]))
def test_no_batch_of_any_numbers_crashes_hangs_or_touches_what_is_not_registered(pair, pieces, op, ms):
    here, there = pair
    start = time.monotonic()
    status = here.transfer(there.engine, op, pieces, timeout_ms=ms)
    assert status in (PARAM_INVALID, FAILED, *([TIMEOUT] if ms == 1 else [])), "nothing is registered"
    if ms <= 0 or not pieces or any(0 in piece for piece in pieces):
        assert status == PARAM_INVALID
    assert time.monotonic() - start < 10
    assert here.run("hixl.last_error() != ''")


@MANY
@given(ranges=st.lists(st.tuples(st.integers(0, 40), st.integers(0, 12), st.booleans()), max_size=12))
def test_registration_follows_the_rule_of_overlaps(pair, ranges):
    """Against a model: same range, same handle; partial overlap of one type refused; types are apart."""
    here, _ = pair
    statuses = here.run("""
handles = {}
outcomes = []
for address, length, device in ranges:
    kind = hixl.MemType.MEM_DEVICE if device else hixl.MemType.MEM_HOST
    status, handle = engine.register_mem(hixl.MemDesc(address * 4096, length * 4096), kind)
    outcomes.append([status, handle])
for handle in {h for s, h in outcomes if s == 0}:
    assert engine.deregister_mem(handle) == 0
outcomes
""", ranges=[list(r) for r in ranges])
    known = {}
    for (address, length, device), (status, handle) in zip(ranges, statuses):
        same = known.get((address, length, device))
        overlap = any(d == device and address < a + n and a < address + length for a, n, d in known)
        if address == 0 or length == 0 or (overlap and same is None):
            assert (status, handle) == (PARAM_INVALID, 0)
        else:
            assert status == SUCCESS and handle != 0
            assert same in (None, handle)
            known[(address, length, device)] = handle


@MANY
@given(remote=TEXT | st.from_regex(r"\d{1,3}(\.\d{1,3}){3}(:\d{1,6})?", fullmatch=True)
       | st.from_regex(r"\[[0-9a-f:]{2,20}\](:\d{1,6})?", fullmatch=True))
def test_any_text_as_an_engines_name_gets_a_code_in_time(pair, remote):
    here, _ = pair
    start = time.monotonic()
    outcome = here.run("""
[engine.connect(remote, 300), engine.disconnect(remote, 300),
 engine.send_notify(remote, hixl.NotifyDesc('', ''), 300)]
""", remote=remote)
    # Names of hosts that exist by chance on this machine refuse, or stay silent.
    assert outcome[0] in (PARAM_INVALID, FAILED, TIMEOUT, SUCCESS)
    if outcome[0] != SUCCESS:
        assert outcome[1] == outcome[2] == NOT_CONNECTED
    assert time.monotonic() - start < 5


@MANY
@given(key=st.sampled_from(["RdmaTrafficClass", "RdmaServiceLevel", "BufferPool", "EnableUseFabricMem",
                            "AutoConnect", "GlobalResourceConfig", "LocalCommRes", "adxl.BufferPool"]) | TEXT,
       value=TEXT | st.from_regex(r"-?\d{1,20}", fullmatch=True)
       | st.from_regex(r"\d{1,12}:\d{1,12}", fullmatch=True)
       | st.recursive(st.none() | st.booleans() | st.integers() | TEXT,
                      lambda inner: st.dictionaries(st.sampled_from(
                          ["connect_pool.thread_num", "fabric_memory", "version", "channel_pool.max_channel",
                           "comm_resource_config.protocol_desc", "x"]), inner, max_size=3), max_leaves=4)
       .map(lambda value: __import__("json").dumps(value)))
def test_any_option_is_accepted_or_refused_by_name(pair, key, value):
    here, _ = pair
    status, said = here.run("""
made = hixl.Hixl()
status = made.initialize('127.0.0.1', {key: value})
said = hixl.last_error()
made.finalize()
[status, said]
""", key=key, value=value)
    assert status in (SUCCESS, PARAM_INVALID, RESOURCE_EXHAUSTED)
    if status == PARAM_INVALID:
        assert "option" in said or "LocalCommRes" in said or key.removeprefix("adxl.") in said
