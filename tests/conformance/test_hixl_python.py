"""The Python module `hixl`: names, values and types of contract section 2, without and with an engine."""

import pytest

ALL = """SUCCESS PARAM_INVALID TIMEOUT NOT_CONNECTED ALREADY_CONNECTED NOTIFY_FAILED UNSUPPORTED FAILED
RESOURCE_EXHAUSTED OPTION_ENABLE_USE_FABRIC_MEM OPTION_RDMA_TRAFFIC_CLASS OPTION_RDMA_SERVICE_LEVEL
OPTION_BUFFER_POOL OPTION_GLOBAL_RESOURCE_CONFIG OPTION_AUTO_CONNECT OPTION_LOCAL_COMM_RES
FEATURE_SUPPORTED FEATURE_NOT_SUPPORTED MemType MEM_DEVICE MEM_HOST TransferOp READ WRITE TransferStatus
AsyncConnectStatus NOT_CONNECT CONNECT_PENDING CONNECTING CONNECTED CONNECT_FAILED DISCONNECT_PENDING
DISCONNECTING FeatureType AUTO_CONNECT CLIENT_SERVER_COMM MemDesc TransferOpDesc TransferArgs
GetTransferStatusArgs TransferResult NotifyDesc Hixl get_capability""".split()


@pytest.fixture
def client(daemon, worker):
    return worker(daemon())


def test_all_names_of_the_contract_are_exported(client):
    exported = client.run("sorted(hixl.__all__)")
    assert set(ALL) <= set(exported)
    assert client.run("[name for name in names if not hasattr(hixl, name)]", names=ALL) == []
    assert client.run("isinstance(hixl.__version__, str)") is True


def test_status_values(client):
    names = "SUCCESS PARAM_INVALID TIMEOUT NOT_CONNECTED ALREADY_CONNECTED NOTIFY_FAILED UNSUPPORTED FAILED"
    values = [0, 103900, 103901, 103902, 103903, 103904, 103905, 503900, 203900]
    code = "[(getattr(hixl, n), type(getattr(hixl, n)).__name__) for n in names]"
    assert client.run(code, names=names.split() + ["RESOURCE_EXHAUSTED"]) == [[v, "int"] for v in values]


def test_option_strings(client):
    assert client.run("""
[hixl.OPTION_ENABLE_USE_FABRIC_MEM, hixl.OPTION_RDMA_TRAFFIC_CLASS, hixl.OPTION_RDMA_SERVICE_LEVEL,
 hixl.OPTION_BUFFER_POOL, hixl.OPTION_GLOBAL_RESOURCE_CONFIG, hixl.OPTION_AUTO_CONNECT,
 hixl.OPTION_LOCAL_COMM_RES]
""") == ["EnableUseFabricMem", "RdmaTrafficClass", "RdmaServiceLevel", "BufferPool",
         "GlobalResourceConfig", "AutoConnect", "LocalCommRes"]


@pytest.mark.parametrize("enum, members", [
    ("MemType", {"MEM_DEVICE": 0, "MEM_HOST": 1}),
    ("TransferOp", {"READ": 0, "WRITE": 1}),
    ("TransferStatus", {"WAITING": 0, "COMPLETED": 1, "TIMEOUT": 2, "FAILED": 3}),
    ("AsyncConnectStatus", {"NOT_CONNECT": 0, "CONNECT_PENDING": 1, "CONNECTING": 2, "CONNECTED": 3,
                            "CONNECT_FAILED": 4, "DISCONNECT_PENDING": 5, "DISCONNECTING": 6}),
    ("FeatureType", {"AUTO_CONNECT": 0, "CLIENT_SERVER_COMM": 1}),
])
def test_enums(client, enum, members):
    code = "e = getattr(hixl, enum)\n{name: int(e.__members__[name]) for name in e.__members__}"
    assert client.run(code, enum=enum) == members
    code = "[(e(v).name == n, e(v).value == v, hash(e(v)) is not None) for n, v in members.items()]"
    assert client.run(code, members=members) == [[True] * 3] * len(members)


def test_unscoped_enums_equal_ints_and_are_exported(client):
    assert client.run("[hixl.MEM_DEVICE == 0, hixl.READ == 0, hixl.AUTO_CONNECT == 0, hixl.CONNECTED "
                      "== hixl.AsyncConnectStatus.CONNECTED]") == [True] * 4


def test_module_level_timeout_and_failed_are_the_status_ints(client):
    assert client.run("[hixl.TIMEOUT, hixl.FAILED]") == [103901, 503900]


def test_data_classes_take_the_contracts_keywords(client):
    assert client.run("""
m = hixl.MemDesc(addr=1, len=2)
m.addr += 10
d = hixl.TransferOpDesc(local_addr=1, remote_addr=2, len=3)
d.len = 9
a = hixl.TransferArgs()
before = a.user_data
a.user_data = 5
g = hixl.GetTransferStatusArgs()
h = hixl.GetTransferStatusArgs(max_query_count=3, skip_waiting=True)
r = hixl.TransferResult()
n = hixl.NotifyDesc(name='a', notify_msg='b')
[m.addr, m.len, d.local_addr, d.remote_addr, d.len, before, a.user_data, g.max_query_count,
 g.skip_waiting, h.max_query_count, h.skip_waiting, r.req, r.user_data, r.status.name, n.name,
 n.notify_msg]
""") == [11, 2, 1, 2, 9, 0, 5, 4294967295, False, 3, True, 0, 0, "WAITING", "a", "b"]


@pytest.mark.parametrize("code", [
    "hixl.MemDesc(-1, 1)", "hixl.MemDesc('a', 1)", "hixl.MemDesc(1.5, 1)", "hixl.MemDesc()",
    "hixl.TransferOpDesc(1, 2)", "hixl.TransferOpDesc(1, 2, -3)", "hixl.NotifyDesc('a')",
    "hixl.Hixl().register_mem(hixl.MemDesc(1, 1), 1)",
    "hixl.Hixl().transfer_sync('127.0.0.1:1', 0, [])",
    "hixl.Hixl().transfer_sync('127.0.0.1:1', hixl.READ, [1])",
    "hixl.Hixl().initialize(1)", "hixl.Hixl().initialize('127.0.0.1', {'a': 1})",
    "hixl.get_capability(0)",
    "setattr(hixl.TransferResult(), 'status', hixl.TransferStatus.FAILED)",
])
def test_wrong_argument_types_raise(client, code):
    outcome = client.run(f"""
try:
    {code}
    outcome = 'accepted'
except (TypeError, AttributeError) as problem:
    outcome = type(problem).__name__
outcome
""")
    assert outcome == ("AttributeError" if code.startswith("setattr") else "TypeError")


def test_capabilities_need_no_engine(client):
    assert client.run("[hixl.get_capability(hixl.FeatureType(v)) for v in (0, 1)]") == [[0, 1], [0, 1]]


def test_uninitialised_engines_answer_failed_everywhere(client):
    assert client.run("""
e = hixl.Hixl()
status, state = e.get_transfer_status(1)
async_status, connection = e.get_async_connect_status('127.0.0.1:1')
[status, state.name, async_status, connection.name, e.get_all_async_connect_status(),
 e.get_all_transfer_status(), e.get_notifies(), e.send_notify('127.0.0.1:1', hixl.NotifyDesc('a', 'b')),
 e.connect_async('127.0.0.1:1'), e.disconnect_async('127.0.0.1:1'), e.finalize()]
""") == [503900, "FAILED", 503900, "NOT_CONNECT", [503900, {}], [503900, []], [503900, []], 503900, 503900,
         503900, None]


def test_two_engines_share_an_id_without_a_port(client):
    code = "a, b = hixl.Hixl(), hixl.Hixl()\n[a.initialize('127.0.0.1:0', o), b.initialize('127.0.0.1:0')]"
    assert client.run(code, o={"AutoConnect": "1"}) == [0, 0]
    assert client.run("a.initialize('127.0.0.1:0')") == 0, "repeated on a live engine: ignored"


def test_ctypes_memory_registers_as_host_and_as_device(client):
    assert client.run("""
import ctypes
memory = ctypes.create_string_buffer(4096)
e = hixl.Hixl()
results = [e.initialize('127.0.0.1:0')]
for kind in (hixl.MemType.MEM_HOST, hixl.MemType.MEM_DEVICE):
    status, handle = e.register_mem(hixl.MemDesc(ctypes.addressof(memory), 4096), kind)
    results += [status, handle != 0, e.deregister_mem(handle)]
results
""") == [0, 0, True, 0, 0, True, 0]


def test_calls_towards_a_closed_port(client):
    outcome = client.run("""
import ctypes
memory = ctypes.create_string_buffer(4096)
e = hixl.Hixl()
e.initialize('127.0.0.1:0', {hixl.OPTION_AUTO_CONNECT: '1'})
peer = '127.0.0.1:19999'
piece = hixl.TransferOpDesc(ctypes.addressof(memory), 0x1000, 16)
[e.connect(peer, 1000), e.disconnect(peer, 1000),
 e.transfer_sync(peer, hixl.TransferOp.READ, [piece], 1000),
 *e.transfer_async(peer, hixl.TransferOp.READ, [piece])]
""")
    connect, disconnect, sync, submit, request = outcome
    assert connect in (103901, 503900, 103902, 103900)
    assert disconnect in (103902, 503900, 103900)
    assert sync in (103902, 503900, 103901, 103900)
    assert submit in (103902, 503900, 103901, 103900) and request == 0


def test_other_threads_run_while_a_call_waits(client):
    """The GIL is released: a counter goes on while connect waits for a host that does not answer."""
    assert client.run("""
import threading
e = hixl.Hixl()
e.initialize('127.0.0.1')
import socket
silent = socket.socket()
silent.bind(('127.0.0.1', 0))
silent.listen(1)
counter, done = 0, threading.Event()
def connect():
    e.connect('127.0.0.1:%d' % silent.getsockname()[1], 1500)
    done.set()
threading.Thread(target=connect).start()
while not done.is_set():
    counter += 1
counter > 10000
""") is True
