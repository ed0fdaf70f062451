"""Contract 1.3: what every call checks, in which order, and what it answers."""

import pytest
from harness.peer import (ALREADY_CONNECTED, FAILED, NOT_CONNECTED, PARAM_INVALID, RESOURCE_EXHAUSTED,
                          SUCCESS, UNSUPPORTED)

NOWHERE = "127.0.0.1:19999"


# --- before Initialize and after Finalize: FAILED before every argument check ----------------------

CALLS = {
    "register_mem": "e.register_mem(hixl.MemDesc(0, 0), HOST)",
    "deregister_mem": "e.deregister_mem(0)",
    "connect": "e.connect('nonsense', -1)",
    "disconnect": "e.disconnect('nonsense', -1)",
    "connect_async": "e.connect_async('nonsense', -1)",
    "disconnect_async": "e.disconnect_async('nonsense', -1)",
    "get_async_connect_status": "e.get_async_connect_status('')",
    "get_all_async_connect_status": "e.get_all_async_connect_status()",
    "transfer_sync": "e.transfer_sync('', READ, [], -1)",
    "transfer_async": "e.transfer_async('', READ, [])",
    "get_transfer_status": "e.get_transfer_status(0)",
    "get_all_transfer_status": "e.get_all_transfer_status()",
    "send_notify": "e.send_notify('', hixl.NotifyDesc('n' * 2000, 'm'), -1)",
    "get_notifies": "e.get_notifies()",
}


@pytest.mark.parametrize("call", CALLS)
def test_rule_1_3_uninitialised_bad(run, call):
    outcome = run(f"""
e = hixl.Hixl()
never = {CALLS[call]}
failed_status = e.initialize('127.0.0.1:0', {{'AutoConnect': '2'}})
failed = {CALLS[call]}
e.initialize('127.0.0.1:0')
e.finalize()
finalised = {CALLS[call]}
[never, failed, finalised, failed_status]
""")
    codes = [answer[0] if isinstance(answer, list) else answer for answer in outcome[:3]]
    assert codes == [FAILED] * 3 and outcome[3] == PARAM_INVALID


def test_rule_1_3_uninitialised_ok(run):
    # The same calls on a live engine get as far as their arguments.
    assert run("e = engine()\n[e.connect('nonsense', 1000), e.deregister_mem(0), e.get_notifies()]") == [
        PARAM_INVALID, PARAM_INVALID, [SUCCESS, []]]


# --- Initialize ------------------------------------------------------------------------------------

def test_rule_1_3_initialize_ok(run):
    assert run("[initialize(), initialize(name='127.0.0.1'), initialize(name=free_name())]") == [0, 0, 0]


def test_rule_1_3_initialize_bad(run):
    # Options come before the address, the address before resources.
    assert run("initialize({'AutoConnect': 'x'}, 'nonsense')") == PARAM_INVALID
    assert "AutoConnect" in run("hixl.last_error()")
    assert run("initialize({}, 'nonsense')") == PARAM_INVALID
    assert "nonsense" in run("hixl.last_error()")
    assert run("""
taken = socket.socket()
taken.bind(('127.0.0.1', 0))
taken.listen()
initialize({}, '127.0.0.1:%d' % taken.getsockname()[1])
""") == FAILED


def test_rule_1_3_initialize_repeated_ok(run):
    # Python's wrapper ignores it altogether (contract 2.5).
    assert run("e = engine()\n[e.initialize('127.0.0.1:0'), e.initialize('nonsense', {'x': 'y'}), "
               "e.get_notifies()]") == [SUCCESS, SUCCESS, [SUCCESS, []]]


def test_rule_1_3_initialize_again_ok(run):
    assert run("""
e = hixl.Hixl()
name = free_name()
statuses = [e.initialize(name, {'AutoConnect': '2'}), e.initialize(name)]
e.finalize()
statuses += [e.initialize(name)]
e.finalize()
statuses
""") == [PARAM_INVALID, SUCCESS, SUCCESS]


# --- memory ----------------------------------------------------------------------------------------

def test_rule_1_3_register_ok(run):
    assert run("e = engine()\nstatus, handle = e.register_mem(hixl.MemDesc(memory(64), 64), HOST)\n"
               "[status, handle != 0]") == [SUCCESS, True]


@pytest.mark.parametrize("address, length", [(0, 0), (0, 16), (1 << 63, 1 << 63), ((1 << 64) - 1, 2)])
def test_rule_1_3_register_bad(run, address, length):
    assert run("engine().register_mem(hixl.MemDesc(a, n), HOST)", a=address, n=length) == [PARAM_INVALID, 0]
    assert "HIXL_001001" in run("hixl.last_error()")


def test_rule_1_3_deregister_ok(run):
    assert run("""
e = engine()
handle = register(e, memory(64), 64)
[e.deregister_mem(0x100), e.deregister_mem(handle), e.deregister_mem(handle)]
""") == [SUCCESS] * 3


def test_rule_1_3_deregister_bad(run):
    assert run("engine().deregister_mem(0)") == PARAM_INVALID
    # A known handle while a client link exists: not with engines that take LocalCommRes 1.3.
    assert run("""
here, there, name, local, remote = pair({'LocalCommRes': '{"version":"1.3"}'})
own = register(here, memory(64), 64)
served = register(there, memory(64), 64)
[here.deregister_mem(own), there.deregister_mem(served), here.disconnect(name), here.deregister_mem(own)]
""") == [FAILED, SUCCESS, SUCCESS, SUCCESS]
    # The default engine has no such check.
    assert run("""
here, there, name, local, remote = pair()
here.deregister_mem(register(here, memory(64), 64))
""") == SUCCESS


# --- links -----------------------------------------------------------------------------------------

def test_rule_1_3_connect_ok(run):
    assert run("e = engine()\nother, name = listening()\ne.connect(name)") == SUCCESS


def test_rule_1_3_connect_bad(run):
    assert run("""
e, own = listening()
other, name = listening()
[e.connect(own, 0), e.connect(own, -5), e.connect(own), e.connect('ad.0.0.1:1'), e.connect('127.0.0.1'),
 e.connect(name), e.connect(name), e.connect('127.0.0.1:19999')]
""") == [PARAM_INVALID] * 5 + [SUCCESS, ALREADY_CONNECTED, FAILED]


def test_rule_1_3_disconnect_ok(run):
    assert run("here, there, name, _, _ = pair()\nhere.disconnect(name)") == SUCCESS
    assert run("here, there, name, _, _ = pair()\nthere.finalize()\nhere.disconnect(name)") == SUCCESS


def test_rule_1_3_disconnect_bad(run):
    assert run("""
here, there, name, local, remote = pair()
[here.disconnect(name, 0), here.disconnect(name, -1), here.disconnect('127.0.0.1:19999'),
 here.disconnect(name), here.disconnect(name)]
""") == [PARAM_INVALID, PARAM_INVALID, NOT_CONNECTED, SUCCESS, NOT_CONNECTED]


@pytest.mark.parametrize("call", ["connect_async", "disconnect_async"])
def test_rule_1_3_connect_async_ok(run, call):
    assert run(f"e = engine()\nother, name = listening()\ne.{call}(name)") == SUCCESS


@pytest.mark.parametrize("call", ["connect_async", "disconnect_async"])
def test_rule_1_3_connect_async_bad(run, call):
    assert run(f"e = engine()\n[e.{call}('127.0.0.1:19999', t) for t in (0, -1)]") == [PARAM_INVALID] * 2
    # One task runs, one waits, the next is too many.
    assert run(f"""
silent = socket.socket()
silent.bind(('127.0.0.1', 0))
silent.listen(1)
kept.append(silent)
e = engine(resources(connect_pool__thread_num=1, connect_pool__task_queue_capacity=1))
peer = '127.0.0.1:%d' % silent.getsockname()[1]
first = e.connect_async(peer, 1500)
running = until(lambda: e.get_async_connect_status(peer)[1] == hixl.CONNECTING)
[first, running, e.{call}('127.0.0.1:19998', 1000), e.{call}('127.0.0.1:19997', 1000)]
""") == [SUCCESS, True, SUCCESS, RESOURCE_EXHAUSTED]


def test_rule_1_3_get_async_connect_status_ok(run):
    assert run("e = engine()\nstatus, state = e.get_async_connect_status('never heard of')\n"
               "[status, state.name, e.get_all_async_connect_status()]") == [
        SUCCESS, "NOT_CONNECT", [SUCCESS, {}]]


# --- transfers -------------------------------------------------------------------------------------

def test_rule_1_3_transfer_sync_ok(run):
    assert run("""
here, there, name, local, remote = pair()
[here.transfer_sync(name, READ, [piece(local, remote, 4096)]), content(local, 4096) == bytes([7]) * 4096]
""") == [SUCCESS, True]


def test_rule_1_3_transfer_sync_bad(run):
    # Timeout, then null addresses, then the link, then the empty list, then lengths and ranges.
    assert run("""
here, there, name, local, remote = pair({'LocalCommRes': '{"version":"1.3"}'})
e = engine()
nowhere = '127.0.0.1:19999'
[e.transfer_sync(nowhere, READ, [], 0), e.transfer_sync(nowhere, READ, [piece(0, 1, 1)]),
 e.transfer_sync(nowhere, READ, [piece(1, 0, 1)]), e.transfer_sync(nowhere, READ, []),
 e.transfer_sync(nowhere, READ, [piece(1, 1, 0)]),
 here.transfer_sync(name, READ, []), here.transfer_sync(name, READ, [piece(local, remote, 0)]),
 here.transfer_sync(name, READ, [piece(local, remote, 4097)]),
 here.transfer_sync(name, WRITE, [piece(local, remote - 1, 16)])]
""") == [PARAM_INVALID] * 3 + [NOT_CONNECTED] * 2 + [PARAM_INVALID] * 4


def test_rule_1_3_transfer_async_ok(run):
    assert run("""
here, there, name, local, remote = pair()
status, request = here.transfer_async(name, READ, [piece(local, remote, 4096)])
[status, request != 0, *ended(here, request)]
""") == [SUCCESS, True, SUCCESS, "COMPLETED"]


def test_rule_1_3_transfer_async_bad(run):
    assert run("""
here, there, name, local, remote = pair()
nowhere = '127.0.0.1:19999'
[here.transfer_async(nowhere, READ, [piece(0, 1, 1)]), here.transfer_async(nowhere, READ, []),
 here.transfer_async(name, READ, []), here.transfer_async(name, READ, [piece(local, remote, 0)])]
""") == [[PARAM_INVALID, 0], [NOT_CONNECTED, 0], [PARAM_INVALID, 0], [PARAM_INVALID, 0]]
    assert run("outcome(here, name, READ, [piece(local, remote, 4097)])") == PARAM_INVALID


def test_rule_1_3_get_transfer_status_bad(run):
    assert run("""
e = engine()
[(status, state.name) for status, state in (e.get_transfer_status(0), e.get_transfer_status(12345))]
""") == [[FAILED, "FAILED"], [PARAM_INVALID, "FAILED"]]
    assert "HIXL_001003" in run("hixl.last_error()")


def test_rule_1_3_get_transfer_status_ok(run):
    test_rule_1_3_transfer_async_ok(run)


def test_rule_1_3_get_all_transfer_status_ok(run):
    assert run("engine({'LocalCommRes': '{\"version\":\"1.3\"}'}).get_all_transfer_status()") == [SUCCESS, []]


def test_rule_1_3_get_all_transfer_status_bad(run):
    assert run("[engine().get_all_transfer_status(), "
               "engine({'EnableUseFabricMem': '1'}).get_all_transfer_status()]") == [[UNSUPPORTED, []]] * 2


def test_rule_1_3_send_notify_bad(run):
    assert run("""
e = engine()
peer = '127.0.0.1:19999'
long = 'x' * 1025
[e.send_notify(peer, hixl.NotifyDesc(long, ''), -1), e.send_notify(peer, hixl.NotifyDesc('', long), 0),
 e.send_notify(peer, hixl.NotifyDesc('', long)), e.send_notify(peer, hixl.NotifyDesc('', '')),
 e.send_notify(peer, hixl.NotifyDesc('x' * 1024, 'y' * 1024))]
""") == [PARAM_INVALID] * 3 + [NOT_CONNECTED] * 2


def test_rule_1_3_get_notifies_ok(run):
    assert run("engine().get_notifies()") == [SUCCESS, []]


# --- the rest --------------------------------------------------------------------------------------

def test_rule_1_3_finalize_ok(run):
    assert run("e = hixl.Hixl()\n[e.finalize(), e.finalize(), e.initialize('127.0.0.1:0'), e.finalize(), "
               "e.finalize()]") == [None, None, SUCCESS, None, None]


def test_rule_1_3_get_capability_ok(run):
    assert run("[hixl.get_capability(hixl.AUTO_CONNECT), "
               "hixl.get_capability(hixl.FeatureType.CLIENT_SERVER_COMM)]") == [[SUCCESS, 1]] * 2
