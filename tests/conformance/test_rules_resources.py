"""What runs out or is not there: descriptors, regions, devices, pages, and variables that say nothing."""

import resource
import subprocess

import pytest
from harness.peer import FAILED, PARAM_INVALID, RESOURCE_EXHAUSTED, SUCCESS
from harness.worker import PYTHON, Worker

V13 = {"LocalCommRes": '{"version":"1.3"}'}


def script(node, code, **variables):
    """Runs a program of its own; returns its output and what it wrote on standard error."""
    result = subprocess.run(node.wrap([PYTHON, "-c", "import os, hixl\n" + code]),
                            env={**node.environment(), **variables}, capture_output=True, text=True, timeout=60,
                            check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout.split(), result.stderr.splitlines()


INITIALIZE = "print(hixl.Hixl().initialize('127.0.0.1'))"


@pytest.fixture(scope="module")
def node(make_node):
    return make_node()


# --- variables -------------------------------------------------------------------------------------

@pytest.mark.parametrize("value", ["DEBUG", "INFO", "WARN", "ERROR", ""])
def test_rule_3_5_log_level_ok(node, value):
    status, lines = script(node, INITIALIZE, HIXL_LOG_LEVEL=value)
    assert status == ["0"] and not [line for line in lines if "HIXL_LOG_LEVEL" in line]


@pytest.mark.parametrize("value", ["BOGUS", "debug", "3"])
def test_rule_3_5_log_level_bad(node, value):
    status, lines = script(node, INITIALIZE + "\n" + INITIALIZE, HIXL_LOG_LEVEL=value)
    assert status == ["0", "0"]
    [line] = lines
    assert f'HIXL_LOG_LEVEL is "{value}"' in line and "DEBUG, INFO, WARN, ERROR" in line


@pytest.mark.parametrize("value", ["", "0", "1"])
def test_rule_3_5_no_autostart_ok(node, value):
    assert script(node, INITIALIZE, HIXLD_NO_AUTOSTART=value) == (["0"], [])


@pytest.mark.parametrize("value", ["yes", "true", "2", "01"])
def test_rule_3_5_no_autostart_bad(node, value):
    status, lines = script(node, INITIALIZE, HIXLD_NO_AUTOSTART=value)
    assert status == [str(PARAM_INVALID)]
    assert f'HIXLD_NO_AUTOSTART is "{value}"' in lines[0] and "0, 1 or empty" in lines[0]


@pytest.mark.parametrize("variables", [{}, {"ASCEND_DEVICE_ID": "1"}, {"ASCEND_RT_VISIBLE_DEVICES": "1,0"},
                                       {"ASCEND_RT_VISIBLE_DEVICES": "7,1", "ASCEND_DEVICE_ID": "1"}])
def test_rule_3_5_device_is_there_ok(node, variables):
    assert script(node, INITIALIZE, **variables) == (["0"], [])


@pytest.mark.parametrize("variables, device", [({"ASCEND_DEVICE_ID": "9"}, "9"),
                                               ({"ASCEND_RT_VISIBLE_DEVICES": "7,8"}, "7"),
                                               ({"ASCEND_RT_VISIBLE_DEVICES": "7,8", "ASCEND_DEVICE_ID": "1"}, "8")])
def test_rule_3_5_device_is_there_bad(node, variables, device):
    status, lines = script(node, INITIALIZE, **variables)
    assert status == ["0"]
    [line] = lines
    assert f"bound to device {device}" in line and "allowed: 0, 1" in line
    for variable, value in variables.items():
        assert f"{variable}={value}" in line


def test_rule_3_4_no_device_ok(make_lab):
    # Whoever gives the list needs no device, nor does a list for a device that is there.
    lab = make_lab({"devices": {"backends": ["host"]}})
    given = ('{"version":"1.3","net_instance_id":"a","endpoint_list":'
             '[{"protocol":"roce","comm_id":"10.0.0.1","placement":"host"}]}')
    assert lab.run("[initialize(), initialize(options)]", options={"LocalCommRes": given}) == [SUCCESS, SUCCESS]


def test_rule_3_4_no_device_bad(make_lab, node):
    lab = make_lab({"devices": {"backends": ["host"]}})
    for text in ('{"version":"1.3"}', '{"version":"1.3","net_instance_id":"a"}', '{"version":"1.3","endpoint_list":[]}'):
        assert lab.run("initialize(options)", options={"LocalCommRes": text}) == PARAM_INVALID
        assert "endpoint_list" in lab.run("hixl.last_error()")
    elsewhere = make_lab(node=node, environment={"ASCEND_DEVICE_ID": "9"})
    assert elsewhere.run("initialize(options)", options=V13) == PARAM_INVALID


# --- pages that are gone -----------------------------------------------------------------------------

# Registered memory of the program, and what becomes of it before the transfer.
GONE = """
import mmap
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
for call in (libc.munmap, libc.mprotect):
    call.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * (call is libc.mprotect)
def pages(nbytes):
    return libc.mmap(None, nbytes, 3, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
def lose(address, nbytes, how):
    assert (libc.munmap(address, nbytes) if how == 'unmapped' else libc.mprotect(address, nbytes, 0)) == 0
def both_ways(here, name, local, remote):
    # Small ones are copied by the program, the large one goes to the daemon.
    return [here.transfer_sync(name, op, [piece(local, remote, n)], 5000) for op in (READ, WRITE) for n in (64, 4096)]
here = engine()
there, name = listening()
local = pages(8192)
register(here, local, 8192)
"""
OWNED = """
target = there.allocate(8192)
remote = target.address
register(there, remote, 8192)
kept.append(target)
"""
PLAIN = "remote = pages(8192)\nregister(there, remote, 8192)\n"
USE = "here.connect(name)\nfirst = [both_ways(here, name, local, remote) for _ in range(3)][-1]\n"


@pytest.mark.parametrize("target", [OWNED, PLAIN], ids=["pool", "plain"])
def test_rule_6_4_unmapped_ok(run, target):
    assert run(GONE + target + USE + "first") == [SUCCESS] * 4


@pytest.mark.parametrize("how", ["unmapped", "unreadable"])
@pytest.mark.parametrize("target, lost", [(OWNED, "local"), (PLAIN, "local"), (PLAIN, "remote")],
                         ids=["local to pool", "local to plain", "remote"])
def test_rule_6_4_unmapped_bad(lab, run, target, lost, how):
    told = run(GONE + target + USE + f"lose({lost}, 8192, '{how}')\n" + """
again = both_ways(here, name, local, remote)
spare, other = memory(64), memory(64, 9)
register(here, spare, 64)
register(there, other, 64)
[first, again, here.transfer_sync(name, READ, [piece(spare, other, 64)])]
""")
    assert told[0] == [SUCCESS] * 4
    assert set(told[1]) == {FAILED}, told[1]
    assert told[2] == SUCCESS
    assert run("os.getpid() > 0")
    lab.node.assert_alive()


def test_unmapped_memory_of_one_of_two_processes(node):
    # The same when the target is another process, whose memory the initiator has mapped.
    server, client = Worker(node), Worker(node)
    name, remote = server.run("""
import socket
with socket.socket() as probe:
    probe.bind(('127.0.0.1', 0))
    name = '127.0.0.1:%d' % probe.getsockname()[1]
e = hixl.Hixl()
e.initialize(name)
buffer = e.allocate(4096)
e.register_mem(hixl.MemDesc(buffer.address, 4096), hixl.MEM_HOST)
[name, buffer.address]
""")
    assert client.run("""
import ctypes, mmap
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
local = libc.mmap(None, 4096, 3, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
e = hixl.Hixl()
e.initialize('127.0.0.1')
e.register_mem(hixl.MemDesc(local, 4096), hixl.MEM_HOST)
e.connect(name)
def copy(op):
    return e.transfer_sync(name, op, [hixl.TransferOpDesc(local, remote, 4096)], 5000)
before = [copy(hixl.READ) for _ in range(5)] + [copy(hixl.WRITE)]
libc.munmap(local, 4096)
before + [copy(hixl.READ), copy(hixl.WRITE)]
""", name=name, remote=remote) == [SUCCESS] * 6 + [FAILED] * 2
    server.close()
    client.close()


# --- limits ----------------------------------------------------------------------------------------

def test_rule_6_4_descriptors_ok(node):
    # Some descriptors are enough.
    assert script(node, "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))\n" + INITIALIZE)[0] == ["0"]


REGISTER = """
e = engine()
block = memory(160)
[e.register_mem(hixl.MemDesc(block + 16 * i, 16), HOST)[0] for i in range(count)]
"""


@pytest.fixture(scope="module")
def eight(make_lab):
    return make_lab({"limits": {"max_regions_per_session": 8}})


def test_rule_6_4_limits_ok(eight):
    assert eight.run(REGISTER, count=8) == [SUCCESS] * 8
    eight.clean()


def test_rule_6_4_limits_bad(eight):
    assert eight.run(REGISTER, count=10) == [SUCCESS] * 8 + [RESOURCE_EXHAUSTED] * 2
    assert "limits.max_regions_per_session" in eight.run("hixl.last_error()")


# How many descriptors are left to the client when it initialises.
STARVED = """
import os, resource
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
held = []
try:
    while True:
        held.append(os.open('/dev/null', os.O_RDONLY))
except OSError:
    pass
for fd in held[:left]:
    os.close(fd)
e = hixl.Hixl()
status = e.initialize('127.0.0.1')
text = hixl.last_error()
for fd in held[left:]:
    os.close(fd)
[status, text, hixl.Hixl().initialize('127.0.0.1')]
"""


@pytest.mark.parametrize("left", [0, 1, 5])
def test_rule_6_4_descriptors_bad(node, left):
    client = Worker(node)
    status, text, again = client.run(STARVED, left=left)
    client.close()
    assert (status, again) == (RESOURCE_EXHAUSTED, SUCCESS)
    assert "RLIMIT_NOFILE" in text and "64" in text


def test_new_clients_of_a_daemon_that_runs_out_of_descriptors(make_node):
    # New clients are refused before the last descriptor is gone; those that are there go on.
    node = make_node()
    first = Worker(node)
    assert first.run("e = hixl.Hixl()\ne.initialize('127.0.0.1')") == SUCCESS
    before = resource.prlimit(node.process.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(node.process.pid, resource.RLIMIT_NOFILE, (100, before[1]))
    clients, told = [], []
    for _ in range(40):
        clients.append(Worker(node))
        told.append(clients[-1].run("e = hixl.Hixl()\n[e.initialize('127.0.0.1'), hixl.last_error()]"))
        if told[-1][0] != SUCCESS:
            break
    assert told[-1][0] == RESOURCE_EXHAUSTED, told[-1]
    assert "RLIMIT_NOFILE" in told[-1][1] and "100" in told[-1][1]
    assert first.run("e.get_notifies()[0]") == SUCCESS
    resource.prlimit(node.process.pid, resource.RLIMIT_NOFILE, before)
    assert clients[-1].run("e.initialize('127.0.0.1')") == SUCCESS
    for client in (first, *clients):
        client.close()
