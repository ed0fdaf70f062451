"""Property tests: whatever the arguments and options are, a call returns a code of the contract, says which
field is wrong, and neither the client nor the daemon ends or hangs."""

import json
import string

import pytest

hypothesis = pytest.importorskip("hypothesis")
from hypothesis import HealthCheck, given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

CODES = {0, 103900, 103901, 103902, 103903, 103905, 203900, 503900}
PARAM_INVALID = 103900

# One daemon and one client process serve every example.
relaxed = settings(max_examples=60, deadline=None, derandomize=True,
                   suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])

texts = st.one_of(st.text(max_size=60), st.sampled_from(
    ["", "0", "1", "-1", "4:8", "0:0", "132", "7", "127.0.0.1", "127.0.0.1:0", "[::1]:1", "127.0.0.1:99999", "{}", "[]",
     "a" * 3000, "\x00", "127.0.0.1:1\x00x"]))
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-2 ** 70, 2 ** 70) | st.floats(allow_nan=False) | texts |
    st.sampled_from(["roce:device", "hccs:device", "1.3", "device", "host", "10.0.0.1"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3), max_leaves=8)
fields = st.sampled_from(
    ["fabric_memory", "fabric_memory.max_capacity", "fabric_memory.task_stream_num", "connect_pool.thread_num",
     "connect_pool.task_queue_capacity", "comm_resource_config.protocol_desc", "comm_resource_config.qos",
     "comm_resource_config.listen_port", "local_comm_res_path", "channel_pool.max_channel",
     "channel_pool.high_waterline", "channel_pool.low_waterline", "version", "net_instance_id", "endpoint_list",
     "unknown"])
objects = st.dictionaries(fields, json_values, max_size=4).map(json.dumps)
option_keys = st.sampled_from(
    ["RdmaTrafficClass", "adxl.RdmaTrafficClass", "RdmaServiceLevel", "BufferPool", "AutoConnect",
     "EnableUseFabricMem", "GlobalResourceConfig", "LocalCommRes", "adxl.LocalCommRes"]) | texts
options = st.dictionaries(option_keys, st.one_of(texts, objects), max_size=3)
# Where a number is expected, and around every edge of it.
numbers = st.one_of(st.integers(0, 2 ** 64 - 1), st.sampled_from(
    [0, 1, 4095, 4096, 2 ** 31 - 1, 2 ** 32, 2 ** 47 - 1, 2 ** 47, 2 ** 63, 2 ** 64 - 4096, 2 ** 64 - 1]))
timeouts = st.integers(-2 ** 31, 300)


@relaxed
@given(options=options)
def test_rule_3_1_any_options_bad(run, options):
    status, text = run("""
e = hixl.Hixl()
status = e.initialize("127.0.0.1:0", options)
e.finalize()
[status, hixl.last_error()]
""", options=options)
    assert status in CODES
    if status != 0:
        assert status == PARAM_INVALID
        assert "option" in text and "allowed" in text, text


@relaxed
@given(name=st.one_of(texts, st.text(string.digits + ".:[]-a%", max_size=24)))
def test_rule_1_4_any_name_bad(run, name):
    status, connected = run("""
e = hixl.Hixl()
first = e.initialize(name)
second = first if first else e.disconnect(name, 1)
e.finalize()
live = engine()
connected = live.connect(name, 1)
clean()
[first, connected]
""", name=name)
    # 503900: a valid address on which nobody can listen here.
    assert status in {0, PARAM_INVALID, 503900} and connected in CODES


@relaxed
@given(address=numbers, length=numbers, kind=st.sampled_from(["HOST", "DEVICE"]), handle=numbers)
def test_rule_1_6_any_range_bad(run, address, length, kind, handle):
    registered, status, unknown = run(f"""
e = engine()
status, registered = e.register_mem(hixl.MemDesc(address, length), {kind})
unknown = e.deregister_mem(handle)
clean()
[registered, status, unknown]
""", address=address, length=length, handle=handle)
    impossible = address == 0 or length == 0 or address + length > 2 ** 64
    assert (status == PARAM_INVALID) == impossible or status == 203900
    assert (registered != 0) == (status == 0)
    assert unknown == (PARAM_INVALID if handle == 0 else 0)


@pytest.fixture(scope="module")
def linked(make_lab):
    lab = make_lab()
    lab.run("here, there, name, local, remote = pair({'LocalCommRes': '{\"version\":\"1.3\"}'})\nengines.clear()\nsaved = list(kept)")
    return lab


pieces = st.lists(st.tuples(st.integers(-2, 4100) | numbers, st.integers(-2, 4100) | numbers,
                            st.integers(0, 4100) | numbers), max_size=4)


@relaxed
@given(pieces=pieces, op=st.sampled_from(["READ", "WRITE"]), asynchronous=st.booleans(), timeout=timeouts)
def test_rule_1_8_any_pieces_bad(linked, pieces, op, asynchronous, timeout):
    # Small numbers are offsets into the registered memory, others are addresses.
    status, good = linked.run(f"""
def at(base, x): return (base + x if x < 5000 else x) % 2 ** 64
descs = [piece(at(local, l), at(remote, r), n) for l, r, n in pieces]
if asynchronous:
    status, request = here.transfer_async(name, {op}, descs)
    if status == 0 and ended(here, request)[1] != 'COMPLETED': status = -1
else:
    status = here.transfer_sync(name, {op}, descs, ms)
status, here.transfer_sync(name, READ, [piece(local, remote, 4096)])
""", pieces=pieces, asynchronous=asynchronous, ms=timeout)
    assert status in CODES or status == -1
    assert good == 0
    inside = pieces and all(0 <= l < 5000 and 0 <= r < 5000 and n > 0 and l + n <= 4096 and r + n <= 4096
                            for l, r, n in pieces)
    if not inside:
        assert status != 0
    if not asynchronous and timeout <= 0:
        assert status == PARAM_INVALID


@relaxed
@given(request=numbers, count=st.integers(0, 2 ** 32 - 1), peer=texts, timeout=timeouts, name=texts, message=texts)
def test_rule_1_9_any_request_bad(linked, request, count, peer, timeout, name, message):
    answers = linked.run("""
query = hixl.GetTransferStatusArgs(count, True)
note = hixl.NotifyDesc(title, text)
[here.get_transfer_status(request)[0], here.get_all_transfer_status(query)[0],
 here.get_async_connect_status(peer)[0], here.disconnect(peer, ms),
 here.send_notify(peer, note, ms), here.connect(peer, min(ms, 1))]
""", request=request, count=count, peer=peer, ms=timeout, title=name, text=message)
    assert set(answers) <= CODES and answers[2] == 0
