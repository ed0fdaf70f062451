"""Rows about control calls: connecting, registering, notifies, and many engines on one daemon."""

from lab import Measured, resident_bytes

from harness.peer import free_port

_ENGINES = """
import ctypes, json, statistics, time
import hixl

def engine(name, **options):
    made = hixl.Hixl()
    status = made.initialize(name, options)
    assert status == 0, (name, hixl.last_error())
    return made

def timed(call):
    start = time.perf_counter_ns()
    status = call()
    took = (time.perf_counter_ns() - start) / 1e6
    assert status == 0, (status, hixl.last_error())
    return took

def percentiles(times):
    times = sorted(times)
    return [times[len(times) // 2], times[min(len(times) - 1, len(times) * 99 // 100)]]
"""

# Serves until its standard input closes.
_SERVE = _ENGINES + """
import sys
engines = [engine(name) for name in {names!r}]
print("ready", flush=True)
sys.stdin.read()
"""


def _milliseconds(p50, p99):
    return f"p50 {p50:.2f} ms, p99 {p99:.2f} ms"


def _ports(count):
    """Distinct free ports."""
    ports = set()
    while len(ports) < count:
        ports.add(free_port())
    return sorted(ports)


def connect_existing(lab):
    daemon, other = lab.local(), lab.daemon("second")
    name = f"127.0.0.1:{free_port()}"
    with lab.serving(other, _SERVE.format(names=[name])):
        times = lab.python(daemon, _ENGINES + f"""
a = engine("127.0.0.1")
assert a.connect({name!r}, 5000) == 0
times = []
for _ in range(1000):
    assert a.disconnect({name!r}, 5000) == 0
    times.append(timed(lambda: a.connect({name!r}, 5000)))
print(json.dumps(percentiles(times)))
""")
    return Measured("connect over an existing link, two daemons on loopback", "p50 under 1 ms",
                    _milliseconds(*times), times[0] < 1, [])


def connect_first(lab):
    daemon = lab.local()
    count = 4 if lab.quick else 12
    names = [f"127.0.0.1:{port}" for port in _ports(count)]
    served = [lab.serving(lab.daemon(f"target {i}"), _SERVE.format(names=[name]))
              for i, name in enumerate(names)]
    try:
        for one in served:
            one.__enter__()
        times = lab.python(daemon, _ENGINES + f"""
a = engine("127.0.0.1")
print(json.dumps(percentiles([timed(lambda: a.connect(n, 5000)) for n in {names!r}])))
""")
    finally:
        for one in served:
            one.__exit__(None, None, None)
    return Measured("connect that makes the first link of two daemons, loopback", "under 20 ms",
                    _milliseconds(*times), times[1] < 20, [])


def notify(lab):
    daemon, other = lab.local(), lab.daemon("second")
    names = [f"127.0.0.1:{port}" for port in _ports(2)]
    values = []
    for where, name in ((daemon, names[0]), (other, names[1])):
        with lab.serving(where, _SERVE.format(names=[name])):
            values.append(lab.python(daemon, _ENGINES + f"""
a = engine("127.0.0.1")
assert a.connect({name!r}, 5000) == 0
note = hixl.NotifyDesc("name", "m" * 64)
times = [timed(lambda: a.send_notify({name!r}, note, 5000)) for _ in range(2000)]
print(json.dumps(percentiles(times)))
"""))
    return Measured("notify, one daemon / two daemons on loopback", "under 100 ms",
                    " / ".join(_milliseconds(*value) for value in values),
                    max(value[1] for value in values) < 100, [])


def register_4096(lab):
    values = lab.python(lab.local(), _ENGINES + """
a = engine("127.0.0.1")
memory = ctypes.create_string_buffer(4096 * 8192)
base = ctypes.addressof(memory)
descs = [hixl.MemDesc(base + i * 8192, 4096) for i in range(4096)]
register, deregister = [], []
for _ in range(20):
    handles = []
    def call():
        status, got = a.register_mem_batch(descs, hixl.MemType.MEM_HOST)
        handles.extend(got)
        return status
    register.append(timed(call))
    deregister.append(timed(lambda: a.deregister_mem_batch(handles)))
print(json.dumps([statistics.median(register), statistics.median(deregister)]))
""")
    return Measured("register / deregister 4096 regions in one call", "under 50 ms, one RPC",
                    f"{values[0]:.1f} / {values[1]:.1f} ms", max(values) < 50, [])


def thousand_engines(lab):
    """Memory before, with 1000 engines, and with 10 000 channels between them."""
    daemon = lab.daemon("many", {"limits": {"max_engines_per_session": 1000}})
    names = [f"127.0.0.1:{port}" for port in _ports(1000)]
    before = resident_bytes(daemon.pid)
    values = lab.python(daemon, _ENGINES + f"""
names = {names!r}
def resident():
    return int(open("/proc/{daemon.pid}/statm").read().split()[1]) * 4096
engines = [engine(name) for name in names]
with_engines = resident()
start = time.perf_counter()
for i, made in enumerate(engines):
    for step in range(1, 11):
        status = made.connect(names[(i + step) % 1000], 10000)
        assert status == 0, hixl.last_error()
took = time.perf_counter() - start
print(json.dumps([with_engines, resident(), took]))
""")
    per_engine = (values[0] - before) / 1000
    per_channel = (values[1] - values[0]) / 10_000
    return Measured("1000 engines and 10 000 channels on one daemon", "works",
                    f"{per_engine / 1024:.1f} KiB per engine, {per_channel / 1024:.2f} KiB per channel, "
                    f"{10_000 / values[2]:.0f} connects/s", True, [])


def channels_between(lab):
    here = lab.daemon("many here", {"limits": {"max_engines_per_session": 1000}})
    there = lab.daemon("many there", {"limits": {"max_engines_per_session": 1000}})
    names = [f"127.0.0.1:{port}" for port in _ports(100)]
    with lab.serving(there, _SERVE.format(names=names)):
        values = lab.python(here, _ENGINES + f"""
names = {names!r}
def resident():
    return [int(open(f"/proc/{{pid}}/statm").read().split()[1]) * 4096 for pid in ({here.pid}, {there.pid})]
engines = [engine("127.0.0.1") for _ in range(100)]
before = resident()
start = time.perf_counter()
for made in engines:
    for name in names:
        status = made.connect(name, 10000)
        assert status == 0, hixl.last_error()
took = time.perf_counter() - start
print(json.dumps([before, resident(), took]))
""")
    grown = [(after - before) / 10_000 / 1024 for before, after in zip(values[0], values[1])]
    return Measured("10 000 channels between two daemons, over one link", "works",
                    f"{grown[0]:.2f} KiB per channel at the initiator, {grown[1]:.2f} at the target, "
                    f"{10_000 / values[2]:.0f} connects/s", True, [])


ROWS = [connect_existing, connect_first, notify, register_4096, thousand_engines, channels_between]
