"""The other side of rules that mostly show in one: what a guarantee refuses, what a refusal lets through."""

import pytest
from harness.peer import ALREADY_CONNECTED, FAILED, NOT_CONNECTED, PARAM_INVALID, SUCCESS

HIXL = "{'LocalCommRes': '{\"version\":\"1.3\"}'}"
ENDPOINT = {"protocol": "roce", "comm_id": "10.0.0.1", "placement": "device"}

# Rule and side: what runs in the client, and what it gives. tools/rule_cases.py reads the names.
RULE_CASES = {
    # --- 1.3, 1.4, 1.5: life
    "1_3_initialize_again_bad": ("""
e = hixl.Hixl()
first = [e.initialize('127.0.0.1:0', {'AutoConnect': '2'}) for _ in range(2)]
first + [e.get_notifies()[0], e.initialize('127.0.0.1:0'), e.get_notifies()[0]]
""", [PARAM_INVALID, PARAM_INVALID, FAILED, SUCCESS, SUCCESS]),
    "1_5_server_goes_first_ok": ("""
here, there, name, local, remote = pair()
[here.transfer_sync(name, READ, [piece(local, remote, 64)]), here.disconnect(name), there.finalize(),
 here.connect(name), here.disconnect(name), here.get_notifies()[0]]
""", [SUCCESS, SUCCESS, None, FAILED, NOT_CONNECTED, SUCCESS]),
    "1_5_name_is_free_after_finalize_bad": ("""
there, name = listening()
taken = initialize(name=name)
there.finalize()
[taken, initialize(name=name)]
""", [FAILED, SUCCESS]),
    "1_5_sessions_end_bad": ("""
a, b = engine(), engine()
a.finalize()
[a.get_notifies()[0], b.get_notifies()[0]]
""", [FAILED, SUCCESS]),
    # --- 1.6: memory
    "1_6_handle_bad": ("""
e = engine()
block = memory(64)
register(e, block, 64)
[e.register_mem(hixl.MemDesc(0, 64), HOST), e.register_mem(hixl.MemDesc(block + 1, 64), HOST)]
""", [[PARAM_INVALID, 0]] * 2),
    "1_6_same_range_bad": ("""
here, there, name, local, remote = pair({'LocalCommRes': '{"version":"1.3"}'})
block = memory(64)
handles = [register(there, block, 64) for _ in range(2)]
[handles[0] == handles[1], here.transfer_sync(name, READ, [piece(local, block, 64)]),
 there.deregister_mem(handles[0]), here.transfer_sync(name, READ, [piece(local, block, 64)]),
 there.deregister_mem(handles[1])]
""", [True, SUCCESS, SUCCESS, PARAM_INVALID, SUCCESS]),
    "1_6_length_zero_ok": ("""
here, there, name, local, remote = pair()
a, b = memory(1), memory(1, 9)
register(here, a, 1)
register(there, b, 1)
[here.transfer_sync(name, READ, [piece(a, b, 1)]), content(a, 1)[0]]
""", [SUCCESS, 9]),
    "1_6_handle_of_another_engine_bad": ("""
a = engine()
block = memory(64)
handle = register(a, block, 64)
a.finalize()
b = engine()
[b.deregister_mem(handle), a.deregister_mem(handle), b.deregister_mem(0)]
""", [SUCCESS, FAILED, PARAM_INVALID]),
    # --- 1.7: links
    "1_7_connect_refused_ok": ("""
e = engine()
name = free_name()
before = e.connect(name, 1000)
there = engine(None, name)
[before, e.connect(name, 1000)]
""", [FAILED, SUCCESS]),
    "1_7_one_of_twenty_bad": ("""
here, there, name, local, remote = pair()
[here.connect(name) for _ in range(3)]
""", [ALREADY_CONNECTED] * 3),
    # --- 1.8: transfers that wait
    "1_8_unregistered_ok": ("""
here, there, name, local, remote = pair()
stray = memory(64, 5)
[here.transfer_sync(name, READ, [piece(local, stray, 64)]), content(local, 64) == bytes([5]) * 64]
""", [SUCCESS, True]),
    "1_8_length_zero_ok": ("""
here, there, name, local, remote = pair()
[here.transfer_sync(name, READ, [piece(local, remote, 1)]), list(content(local, 2))]
""", [SUCCESS, [7, 0]]),
    "1_8_goes_on_after_an_error_bad": (f"""
here, there, name, local, remote = pair({HIXL})
[here.transfer_sync(name, READ, [piece(local, remote, 5000)]) for _ in range(3)]
""", [PARAM_INVALID] * 3),
    # --- 1.9: transfers that are asked about
    "1_9_told_once_ok": ("""
here, there, name, local, remote = pair()
_, request = here.transfer_async(name, READ, [piece(local, remote, 64)])
[*ended(here, request), content(local, 64) == bytes([7]) * 64]
""", [SUCCESS, "COMPLETED", True]),
    "1_9_after_disconnect_ok": ("""
here, there, name, local, remote = pair()
third, other = listening()
register(third, memory(64, 3), 64)
here.connect(other)
_, request = here.transfer_async(other, READ, [piece(local, ctypes.addressof(kept[-1]), 64)])
[here.disconnect(name), *ended(here, request)]
""", [SUCCESS, SUCCESS, "COMPLETED"]),
    "1_9_no_relay_ok": ("""
here, there, name, local, remote = pair({'BufferPool': '4:8'})
outcome(here, name, READ, [piece(local, remote, 64)])
""", "COMPLETED"),
    "1_9_handles_bad": ("""
here, there, name, local, remote = pair()
[here.transfer_async(name, READ, pieces)[1] for pieces in ([], [piece(0, remote, 1)], [piece(local, remote, 0)])]
""", [0, 0, 0]),
    "1_9_user_data_bad": (f"""
here, there, name, local, remote = pair({HIXL})
_, request = here.transfer_async(name, READ, [piece(local, remote, 64)])
results = []
until(lambda: results.extend(here.get_all_transfer_status(hixl.GetTransferStatusArgs(skip_waiting=True))[1]) or results)
[results[0].req == request, results[0].user_data]
""", [True, 0]),
    "1_9_without_link_ok": ("""
here, there, name, local, remote = pair()
here.disconnect(name)
refused = here.transfer_async(name, READ, [piece(local, remote, 64)])
here.connect(name)
[refused, outcome(here, name, READ, [piece(local, remote, 64)])]
""", [[NOT_CONNECTED, 0], "COMPLETED"]),
    # --- 1.12, 1.13
    "1_12_auto_connect_async_bad": ("""
here = engine({'AutoConnect': '1'})
local = memory(64)
register(here, local, 64)
[here.transfer_async(free_name(), READ, [piece(local, local, 64)]),
 here.transfer_async('nonsense', READ, [piece(local, local, 64)])]
""", [[FAILED, 0], [PARAM_INVALID, 0]]),
    "1_12_explicit_connect_stays_legal_bad": ("""
here, there, name, local, remote = pair({'AutoConnect': '1'})
[here.connect(name), here.disconnect(name), here.disconnect(name)]
""", [ALREADY_CONNECTED, SUCCESS, NOT_CONNECTED]),
    "1_12_off_ok": ("""
here, there, name, local, remote = pair({'AutoConnect': '0'})
here.transfer_sync(name, READ, [piece(local, remote, 16)])
""", SUCCESS),
    "1_12_error_disconnects_ok": ("""
here, there, name, local, remote = pair({'AutoConnect': '1'})
[here.transfer_sync(name, READ, [piece(local, remote, 16)]), here.disconnect(name)]
""", [SUCCESS, SUCCESS]),
    "1_13_finalize_drops_queued_tasks_bad": ("""
e = engine()
e.finalize()
state = e.get_async_connect_status('127.0.0.1:19999')
[e.connect_async('127.0.0.1:19999'), e.disconnect_async('127.0.0.1:19999'), state[0], state[1].name,
 e.get_all_async_connect_status()]
""", [FAILED, FAILED, FAILED, "NOT_CONNECT", [FAILED, {}]]),
    # --- 3.4
    "3_4_both_rtp_and_uboe_ok": (f"""
import json
def one(protocol, comm_id):
    entry = {{'protocol': protocol, 'comm_id': comm_id, 'placement': 'device'}}
    return initialize({{'LocalCommRes': json.dumps({{'version': '1.3', 'net_instance_id': 'a', 'endpoint_list': [entry]}})}})
[one('ub_rtp', 'a' * 32), one('uboe', '10.0.0.1')]
""", [SUCCESS, SUCCESS]),
    "3_4_endpoint_fields_ok": (f"""
import json
entry = {ENDPOINT!r}
initialize({{'LocalCommRes': json.dumps({{'version': '1.3', 'net_instance_id': 'a', 'endpoint_list': [entry]}})}})
""", SUCCESS),
    # --- 6.1 B26
    "6_1_b26_ok": ("""
here, there, name, local, remote = pair({'EnableUseFabricMem': '1'})
[here.transfer_sync(name, op, [piece(local + i, remote + i, 1) for i in range(0, 64, 8)]) for op in (READ, WRITE)]
""", [SUCCESS, SUCCESS]),
    "6_1_b26_bad": ("""
here, there, name, local, remote = pair({'EnableUseFabricMem': '1'})
ours, theirs = memory(64), memory(64, 3)
register(here, ours, 64, DEVICE)
register(there, theirs, 64, DEVICE)
mixes = [[piece(local, remote, 8), piece(ours, remote, 8)], [piece(ours, theirs, 8), piece(ours, remote, 8)]]
told = [here.transfer_sync(name, READ, mix) for mix in mixes] + [here.transfer_async(name, WRITE, mixes[0])]
told + ['one kind' in hixl.last_error(), content(local, 8) == bytes(8),
        here.transfer_sync(name, READ, [piece(ours, theirs, 8), piece(ours + 8, theirs + 8, 8)])]
""", [PARAM_INVALID, PARAM_INVALID, [PARAM_INVALID, 0], True, True, SUCCESS]),
}


@pytest.mark.parametrize("rule", RULE_CASES)
def test_sides(run, rule):
    code, expected = RULE_CASES[rule]
    assert run(code) == expected
