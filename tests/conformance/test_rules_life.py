"""Forks, threads, many engines, many processes, and how a process ends: contract 1.4, 1.5, 2.5, 6.4."""

import json
import signal
import subprocess
import textwrap

import pytest
from harness.peer import FAILED, SUCCESS
from harness.worker import PYTHON, Worker


def script(node, code, timeout=60, **options):
    """Runs a Python program of its own to its end."""
    return subprocess.run(node.wrap([PYTHON, "-c", textwrap.dedent(code)]), env=node.environment(),
                          capture_output=True, text=True, timeout=timeout, check=False, **options)


def sessions(node):
    return json.loads(node.ctl("--json", "sessions").stdout)["sessions"]


# --- forks -----------------------------------------------------------------------------------------

FORKED = """
import json
readable, writable = os.pipe()
child = os.fork()
if child == 0:
    try:
        os.write(writable, json.dumps(work()).encode())
    finally:
        os._exit(0)
os.close(writable)
with os.fdopen(readable) as told:
    answer = json.load(told)
os.waitpid(child, 0)
"""


def test_rule_6_4_fork_bad(run):
    # A child cannot use its parent's engine; the parent goes on as if nothing had happened.
    assert run("""
here, there, name, local, remote = pair()
def work():
    return [here.connect(name), here.transfer_sync(name, READ, [piece(local, remote, 16)]),
            here.register_mem(hixl.MemDesc(local, 16), HOST), here.finalize()]
""" + FORKED + "[answer, here.transfer_sync(name, READ, [piece(local, remote, 4096)]), "
               "content(local, 4096) == bytes([7]) * 4096]") == [[FAILED, FAILED, [FAILED, 0], None], SUCCESS, True]


def test_rule_6_4_fork_ok(run):
    # It may make an engine of its own, beside its parent's, and talk to it.
    assert run("""
there, name = listening()
source = memory(4096, 8)
register(there, source, 4096)
def work():
    mine = hixl.Hixl()
    statuses = [mine.initialize('127.0.0.1:0')]
    block = ctypes.create_string_buffer(4096)
    statuses.append(mine.register_mem(hixl.MemDesc(ctypes.addressof(block), 4096), HOST)[0])
    statuses.append(mine.connect(name, 5000))
    statuses.append(mine.transfer_sync(name, READ, [piece(ctypes.addressof(block), source, 4096)]))
    mine.finalize()
    return statuses + [block.raw == bytes([8]) * 4096]
""" + FORKED + "[answer, there.get_notifies()[0]]") == [[SUCCESS] * 4 + [True], SUCCESS]


def test_rule_6_4_fork_and_exit_ok(lab, run):
    # A child that ends in the ordinary way releases nothing of its parent's.
    assert run("""
import multiprocessing
here, there, name, local, remote = pair()
processes = [multiprocessing.get_context('fork').Process(target=lambda: None) for _ in range(5)]
for p in processes: p.start()
for p in processes: p.join(30)
[[p.exitcode for p in processes], here.transfer_sync(name, READ, [piece(local, remote, 16)])]
""") == [[0] * 5, SUCCESS]


# --- threads -----------------------------------------------------------------------------------------

def test_rule_1_4_every_call_from_threads_ok(run):
    # Eight threads call everything at once on one engine; each sees codes of the contract only.
    codes = run("""
here, there, name, local, remote = pair(nbytes=1 << 16)
codes, stop = set(), time.monotonic() + 2
def work(seed):
    import random
    choose = random.Random(seed)
    mine = memory(4096)
    while time.monotonic() < stop:
        k = choose.randrange(9)
        if k == 0: codes.add(here.connect(name, 1000))
        elif k == 1: codes.add(here.transfer_sync(name, READ, [piece(local, remote, 64)]))
        elif k == 2:
            status, request = here.transfer_async(name, WRITE, [piece(local, remote, 64)])
            codes.add(status)
            if status == 0: codes.add(here.get_transfer_status(request)[0])
        elif k == 3:
            status, handle = here.register_mem(hixl.MemDesc(mine, 4096), HOST)
            codes.add(status)
            codes.add(here.deregister_mem(handle) if status == 0 else 0)
        elif k == 4: codes.add(here.get_async_connect_status(name)[0])
        elif k == 5: codes.add(here.get_notifies()[0])
        elif k == 6: codes.add(here.connect_async(name, 1000))
        elif k == 7: codes.add(here.get_all_async_connect_status()[0])
        elif k == 8 and choose.random() < 0.1: codes.add(here.disconnect(name, 1000))
threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
for t in threads: t.start()
for t in threads: t.join()
sorted(codes)
""", timeout=120)
    assert set(codes) <= {SUCCESS, FAILED, 103900, 103902, 103903, 203900}, codes


def test_rule_6_4_several_engines_ok(run):
    # Sixteen engines of one process, all linked to all, in one session.
    assert run("""
made = [listening() for _ in range(16)]
statuses = [a.connect(name) for a, own in made for b, name in made if name != own]
blocks = [memory(64, i) for i in range(16)]
for (e, _), block in zip(made, blocks): register(e, block, 64)
moved = []
for i, (e, _) in enumerate(made):
    j = (i + 5) % 16
    moved.append(e.transfer_sync(made[j][1], READ, [piece(blocks[i], blocks[j], 64)]))
[list(set(statuses)), list(set(moved))]
""") == [[SUCCESS], [SUCCESS]]


def test_rule_6_4_too_many_engines_bad(make_lab):
    lab = make_lab({"limits": {"max_engines_per_session": 3}})
    assert lab.run("[hixl.Hixl() for _ in range(0)]\nmade = [hixl.Hixl() for _ in range(4)]\n"
                   "[e.initialize('127.0.0.1') for e in made]") == [SUCCESS] * 3 + [203900]
    assert "limits.max_engines_per_session" in lab.run("hixl.last_error()")


def test_rule_6_4_engines_in_many_processes_ok(lab, run):
    # Twenty processes read one server's memory at once.
    name, address = run("""
there, name = listening()
source = memory(1 << 16, 4)
register(there, source, 1 << 16)
[name, source]
""")
    workers = [Worker(lab.node) for _ in range(20)]
    for worker in workers:
        worker.start("""
import ctypes
e = hixl.Hixl()
block = ctypes.create_string_buffer(1 << 16)
here = ctypes.addressof(block)
statuses = [e.initialize('127.0.0.1'), e.register_mem(hixl.MemDesc(here, 1 << 16), hixl.MEM_HOST)[0],
            e.connect(peer, 10000), e.transfer_sync(peer, hixl.READ, [hixl.TransferOpDesc(here, remote, 1 << 16)], 10000)]
[statuses, block.raw == bytes([4]) * (1 << 16)]
""", peer=name, remote=address)
    assert [worker.result(60) for worker in workers] == [[[SUCCESS] * 4, True]] * 20
    for worker in workers:
        worker.close()
    assert run("there.get_notifies()[0]") == SUCCESS


# --- the end of a process ------------------------------------------------------------------------------

ENDINGS = {
    "with live engines": "",
    "after finalize": "a.finalize(); b.finalize()",
    "with a transfer under way": "a.transfer_async(name, hixl.READ, [hixl.TransferOpDesc(x, x, 1 << 16)])",
    "with connects under way": "[a.connect_async('127.0.0.1:%d' % p, 500) for p in range(2, 30)]",
    "with a cycle": "class Node: pass\nn = Node(); n.engine = a; n.self = n; del a, n",
    "with a daemon thread in a call": "threading.Thread(target=lambda: [a.connect('127.0.0.1:1', 50) for _ in "
                                      "range(100000)], daemon=True).start(); time.sleep(0.1)",
    "in atexit": "import atexit; atexit.register(lambda: print(a.connect(name), a.finalize()))",
    "by sys.exit in a thread's shadow": "sys.exit(0)",
    "with a buffer": "buffer = a.allocate(1 << 20); view = memoryview(buffer)",
}


@pytest.mark.parametrize("how", ENDINGS)
def test_rule_1_5_process_ends_ok(lab, how):
    result = script(lab.node, """
import ctypes, socket, sys, threading, time
import hixl
with socket.socket() as probe:
    probe.bind(('127.0.0.1', 0))
    name = '127.0.0.1:%d' % probe.getsockname()[1]
a, b = hixl.Hixl(), hixl.Hixl()
assert (a.initialize('127.0.0.1:0'), b.initialize(name)) == (0, 0)
memory = ctypes.create_string_buffer(1 << 16)
x = ctypes.addressof(memory)
for e in (a, b):
    assert e.register_mem(hixl.MemDesc(x, 1 << 16), hixl.MEM_HOST)[0] == 0
assert a.connect(name) == 0
""" + ENDINGS[how])
    assert result.returncode == 0, result.stderr
    assert "Traceback" not in result.stderr and "terminate" not in result.stderr, result.stderr


def test_rule_1_5_process_killed_ok(lab):
    # Whatever was open is released; the name can be taken at once.
    worker = Worker(lab.node)
    name = worker.run("""
import socket
with socket.socket() as probe:
    probe.bind(('127.0.0.1', 0))
    name = '127.0.0.1:%d' % probe.getsockname()[1]
e = hixl.Hixl()
e.initialize(name)
name
""")
    worker.process.send_signal(signal.SIGKILL)
    worker.process.wait()
    successor = Worker(lab.node)
    assert successor.run("e = hixl.Hixl()\ne.initialize(name)", name=name) == SUCCESS
    successor.close()


def test_rule_1_5_sessions_end_ok(lab, run):
    # The last engine that goes takes its process's session along, and the next one brings a new one.
    assert run("e = engine()\nos.getpid() > 0") is True
    pid = run("os.getpid()")
    assert pid in [s["pid"] for s in sessions(lab.node)]
    run("clean()")
    assert pid not in [s["pid"] for s in sessions(lab.node)]
    assert run("engine().get_notifies()[0]") == SUCCESS


def test_rule_2_5_collected_ok(run):
    assert run("""
import gc
name = free_name()
e = hixl.Hixl()
e.initialize(name)
del e
gc.collect()
initialize(name=name)
""") == SUCCESS
