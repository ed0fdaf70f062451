"""One function per row of the tables. Each returns what was measured and whether it is enough."""

import statistics
import subprocess

from lab import MIB, Measured, holdings, processor_seconds, resident_bytes, wait

OPS = ("read", "write")


def _by_op(results):
    return {result["op"]: result for result in results}


def _both(values, form):
    return " / ".join(form.format(value) for value in values)


def _against_memcpy(lab, work, least, wanted, *arguments):
    """One daemon against memcpy with as many threads as workers."""
    daemon = lab.daemon("one core")
    lab.on_one_core(daemon)
    results = _by_op(lab.bench(daemon, *arguments, "--baseline", "memcpy", "--memcpy-threads",
                               lab.workers(daemon)))
    ratios = [results[op]["memcpy"]["ratio"] for op in OPS]
    rates = [results[op]["gb_per_s"] for op in OPS]
    return Measured(work, f"{least} of {wanted}",
                    f"{_both(ratios, '{:.2f}')} ({_both(rates, '{:.1f}')} GB/s)",
                    min(ratios) >= least, [])


def memcpy_128m(lab):
    return _against_memcpy(lab, "one daemon, 128 MiB, host to host", 0.95, "memcpy with the same threads",
                           "--block", "128M")


def scattered_8192(lab):
    return _against_memcpy(lab, "one daemon, 8192 blocks of 16 KiB, scattered", 0.85,
                           "memcpy over the same list",
                           "--block", "16K", "--batch", "8192", "--layout", "scattered")


def contiguous_list(lab):
    ratios = {op: [] for op in OPS}
    for _ in range(3):
        block = _by_op(lab.bench(lab.local(), "--block", "512M", "--rounds", "3"))
        blocks = _by_op(lab.bench(lab.local(), "--block", "16K", "--batch", "32768", "--rounds", "3"))
        for op in OPS:
            ratios[op].append(blocks[op]["gb_per_s"] / block[op]["gb_per_s"])
    shuffled = _by_op(lab.bench(lab.local(), "--block", "16K", "--batch", "32768", "--layout",
                                "shuffled", "--baseline", "memcpy"))
    medians = [statistics.median(ratios[op]) for op in OPS]
    memcpy = [shuffled[op]["memcpy"]["ratio"] for op in OPS]
    return Measured("one daemon, 32 768 x 16 KiB contiguous list", "0.9 of one big block",
                    f"{_both(medians, '{:.2f}')} (shuffled: {_both(memcpy, '{:.2f}')} of memcpy)",
                    min(medians) >= 0.9, [])


def direct_4k(lab):
    results = _by_op(lab.bench(lab.local(), "--block", "4K"))
    times = [results[op]["p50_us"] for op in OPS]
    tails = [results[op]["p99_us"] for op in OPS]
    return Measured("sync 4 KiB, direct (same uid), C++", "p50 at most 1 us",
                    f"p50 {_both(times, '{:.2f}')} us (p99 {_both(tails, '{:.2f}')})",
                    max(times) <= 1, [])


def hop_4k(lab):
    results = _by_op(lab.bench(lab.hopping(workers={"spin_us": 1000}), "--block", "4K", "--baseline",
                               "grpc"))
    times = [results[op]["p50_us"] for op in OPS]
    factors = [results[op]["grpc"]["ratio"] for op in OPS]
    return Measured("sync 4 KiB through the daemon, awake, both sides polling",
                    "p50 at most 5 us, 10 times faster than a gRPC unary call",
                    f"p50 {_both(times, '{:.2f}')} us, {_both(factors, '{:.1f}')} times faster",
                    max(times) <= 5 and min(factors) >= 10, [])


def direct_32(lab):
    results = _by_op(lab.bench(lab.local(), "--block", "16K", "--batch", "32", "--baseline", "memcpy"))
    ratios = [results[op]["memcpy"]["ratio"] for op in OPS]
    rates = [results[op]["gb_per_s"] for op in OPS]
    return Measured("32 x 16 KiB in one sync call, direct", "within 10 % of a plain memcpy loop",
                    f"{_both(ratios, '{:.2f}')} of it ({_both(rates, '{:.1f}')} GB/s)",
                    min(ratios) >= 0.9, [])


def asleep_4k(lab):
    results = _by_op(lab.bench(lab.hopping(), "--block", "4K", "--pause", "2ms", "--iterations",
                               "50" if lab.quick else "500", "--baseline", "wake"))
    times = [results[op]["p50_us"] for op in OPS]
    wakes = [results[op]["wake"]["p50_us"] for op in OPS]
    return Measured("sync 4 KiB through the daemon, asleep", "p50 at most 30 us",
                    f"p50 {_both(times, '{:.1f}')} us (to wake a thread alone takes "
                    f"{_both(wakes, '{:.1f}')} us here)", max(times) <= 30, [])


def async_blocks(lab):
    results = _by_op(lab.bench(lab.hopping(), "--block", "4K", "--batch", "64", "--async", "--depth",
                               "16", "--batch-as", "blocks"))
    rates = [results[op]["blocks_per_s"] / 1e6 for op in OPS]
    return Measured("async, batches of 64 x 4 KiB, one worker", "over 1 million blocks/s",
                    f"{_both(rates, '{:.2f}')} million blocks/s", min(rates) > 1, [])


def tcp_large(lab, mtu):
    pair = lab.nodes(mtu)
    results = _by_op(lab.bench_between(pair, "--block", "128M", "--baseline", "socket"))
    iperf = [lab.iperf3(pair, 2, reverse=op == "read") for op in OPS]
    rates = [results[op]["gb_per_s"] for op in OPS]
    ratios = [rate / other for rate, other in zip(rates, iperf)]
    sockets = [results[op]["socket_zero_copy"]["ratio"] for op in OPS]
    return Measured(f"TCP between two namespaces, 128 MiB, MTU {mtu}",
                    "0.95 of iperf3 -Z with the same streams",
                    f"{_both(ratios, '{:.2f}')} ({_both(rates, '{:.1f}')} GB/s; "
                    f"{_both(sockets, '{:.2f}')} of the socket baseline with zero copy)",
                    min(ratios) >= 0.95, [])


def tcp_large_default(lab):
    return tcp_large(lab, 1500)


def tcp_large_jumbo(lab):
    return tcp_large(lab, 9000)


# Plain sockets: batches of 2 MiB, each acknowledged by one byte before the next, and the same bytes
# without waiting. Prints the first's speed over the second's.
_PLAIN_TARGET = """
import socket
server = socket.create_server(("{address}", 0))
print(server.getsockname()[1], flush=True)
connection, _ = server.accept()
connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
place = memoryview(bytearray({batch}))
while True:
    got = 0
    while got < {batch}:
        count = connection.recv_into(place[got:])
        if not count:
            raise SystemExit
        got += count
    connection.sendall(b"x")
"""

_PLAIN_INITIATOR = """
import json, socket, statistics, time
connection = socket.create_connection(("{address}", {port}))
connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
batch = bytes({batch})
def seconds(under_way):
    start = time.perf_counter()
    for i in range(200 + under_way):
        if i >= under_way:
            connection.recv(1, socket.MSG_WAITALL)
        if i < 200:
            connection.sendall(batch)
    return time.perf_counter() - start
print(json.dumps(statistics.median(seconds(4) / seconds(1) for _ in range(7))))
"""


def _plain_batches(lab, pair):
    """How much of its speed a plain connection keeps when it waits for each batch of 2 MiB."""
    place = {"address": pair[1].host.address, "batch": 2 * MIB}
    target = subprocess.Popen(pair[1].wrap(["/usr/bin/python3", "-c", _PLAIN_TARGET.format(**place)]),
                              stdout=subprocess.PIPE, text=True)
    try:
        return lab.python(pair[0], _PLAIN_INITIATOR.format(port=target.stdout.readline().strip(), **place))
    finally:
        target.kill()
        target.communicate()


def _tcp_16k(lab, work, *how):
    pair = lab.nodes()
    ratios = {op: [] for op in OPS}
    for _ in range(3):
        large = _by_op(lab.bench_between(pair, "--block", "128M", "--rounds", "3"))
        small = _by_op(lab.bench_between(pair, "--block", "16K", "--batch", "128", *how,
                                         "--rounds", "3"))
        for op in OPS:
            ratios[op].append(small[op]["gb_per_s"] / large[op]["gb_per_s"])
    medians = [statistics.median(ratios[op]) for op in OPS]
    plain = "" if how else f" (a plain connection: {_plain_batches(lab, pair):.2f})"
    return Measured(work, "0.8 of its own 128 MiB speed", _both(medians, "{:.2f}") + plain,
                    min(medians) >= 0.8, [])


def tcp_16k(lab):
    return _tcp_16k(lab, "TCP, 16 KiB blocks, batch 128, one batch after the other")


def tcp_16k_async(lab):
    return _tcp_16k(lab, "TCP, 16 KiB blocks, batch 128, four batches under way", "--async",
                    "--depth", "4")


# Slower than the network between the namespaces, so that stages that waited for each other would
# show: three of equal speed one after the other reach a third of it.
_DEVICE_BANDWIDTH = 10**9


def device_pipeline(lab):
    pair = lab.nodes(9000, devices={"sim": {"copy_bandwidth": _DEVICE_BANDWIDTH}})
    results = _by_op(lab.bench_between(pair, "--memory", "device", "--block", "128M"))
    ratios = [results[op]["gb_per_s"] * 1e9 / _DEVICE_BANDWIDTH for op in OPS]
    return Measured("TCP, 128 MiB, sim device to sim device, copy engines of 1 GB/s",
                    "0.9 of the copy engines' speed", _both(ratios, "{:.2f}"), min(ratios) >= 0.9, [])


_DIRECT_SIZES = ("64K", "256K", "1M", "4M", "16M")


def direct_threshold(lab):
    """Where the daemon's workers overtake the caller's own copy: local.direct_max_bytes."""
    daemon = lab.daemon("direct", {"local": {"direct_max_bytes": "64MiB"}})
    results = lab.bench(daemon, "--block", ",".join(_DIRECT_SIZES), "--op", "read", "--path",
                        "direct,ring", "--working-set", "256M")
    rates = {path: [result["gb_per_s"] for result in results if result["path"] == path]
             for path in ("direct", "ring")}
    value = ", ".join(f"{size}: {direct:.1f} / {ring:.1f}" for size, direct, ring in
                      zip(_DIRECT_SIZES, rates["direct"], rates["ring"]))
    return Measured("one block read by the caller itself / by the daemon, not in cache",
                    "(decides local.direct_max_bytes)", f"{value} GB/s", None, [])


_PYTHON_SYNC = """
import json, statistics, time
import hixl
a, b = hixl.Hixl(), hixl.Hixl()
assert b.initialize("127.0.0.1:{port}", {{}}) == 0
assert a.initialize("127.0.0.1", {{}}) == 0
local = a.allocate(4096, mem_type=hixl.MemType.MEM_HOST)
remote = b.allocate(4096, mem_type=hixl.MemType.MEM_HOST)
assert a.register_mem(hixl.MemDesc(local.address, 4096), hixl.MemType.MEM_HOST)[0] == 0
assert b.register_mem(hixl.MemDesc(remote.address, 4096), hixl.MemType.MEM_HOST)[0] == 0
assert a.connect("127.0.0.1:{port}", 5000) == 0
descs = [hixl.TransferOpDesc(local.address, remote.address, 4096)]
times = []
for i in range(20000):
    start = time.perf_counter_ns()
    status = a.transfer_sync("127.0.0.1:{port}", hixl.TransferOp.READ, descs, 1000)
    times.append(time.perf_counter_ns() - start)
    assert status == 0, status
print(json.dumps(statistics.median(times[1000:]) / 1000))
"""


def python_4k(lab):
    from harness.peer import free_port
    daemon = lab.local()
    cpp = _by_op(lab.bench(daemon, "--one-process", "--block", "4K", "--op", "read"))["read"]["p50_us"]
    python = lab.python(daemon, _PYTHON_SYNC.format(port=free_port()))
    return Measured("Python over C++, sync 4 KiB", "at most 3 us more",
                    f"{python - cpp:.2f} us more ({python:.2f} against {cpp:.2f})",
                    python - cpp <= 3, [])


_PYTHON_BLOCKS = """
import json, statistics, time
import numpy
import hixl
COUNT, SIZE = 10_000, 4096
a, b = hixl.Hixl(), hixl.Hixl()
assert b.initialize("127.0.0.1:{port}", {{}}) == 0
assert a.initialize("127.0.0.1", {{}}) == 0
tables = []
for engine in (a, b):
    memory = engine.allocate(COUNT * SIZE, mem_type=hixl.MemType.MEM_HOST)
    assert engine.register_mem(hixl.MemDesc(memory.address, COUNT * SIZE), hixl.MemType.MEM_HOST)[0] == 0
    tables.append((hixl.BlockTable(memory.address, SIZE, SIZE, COUNT), memory))
assert a.connect("127.0.0.1:{port}", 5000) == 0
order = numpy.random.default_rng(1)
mine, theirs = order.permutation(COUNT), order.permutation(COUNT)
times = []
for i in range(200):
    start = time.perf_counter_ns()
    status, request = a.transfer_async_blocks("127.0.0.1:{port}", hixl.TransferOp.READ, tables[0][0],
                                              tables[1][0], mine, theirs)
    times.append(time.perf_counter_ns() - start)
    assert status == 0, hixl.last_error()
    while a.get_transfer_status(request)[1] == hixl.TransferStatus.WAITING:
        pass
print(json.dumps(statistics.median(times[10:]) / 1000))
"""


def python_blocks(lab):
    from harness.peer import free_port
    micros = lab.python(lab.local(), _PYTHON_BLOCKS.format(port=free_port()))
    return Measured("Python, 10 000 blocks of a table by NumPy indices", "under 1 ms to submit",
                    f"{micros:.0f} us", micros < 1000, [])


def flat(lab):
    daemon = lab.hopping()
    lab.bench(daemon, "--block", "4K", "--iterations", "1000", "--rounds", "1")
    before = holdings(daemon.pid)
    lab.bench(daemon, "--block", "4K", "--iterations", "50000", "--rounds", "1")
    after = holdings(daemon.pid)
    grown = after[2] - before[2]
    return Measured("100 000 transfers", "descriptors, maps and RSS flat",
                    f"descriptors {after[0] - before[0]:+d}, maps {after[1] - before[1]:+d}, "
                    f"RSS {grown / MIB:+.2f} MiB",
                    after[0] <= before[0] and after[1] <= before[1] and grown < MIB, [])


def idle(lab):
    daemon = lab.daemon("idle")
    wait(1)
    before = processor_seconds(daemon.pid)
    seconds = 3 if lab.quick else 20
    wait(seconds)
    share = (processor_seconds(daemon.pid) - before) / seconds * 100
    resident = resident_bytes(daemon.pid) / MIB
    # What there is belongs to gRPC's timers, six times a second.
    return Measured("idle", "0 % CPU, RSS under 40 MiB", f"{share:.2f} % CPU, {resident:.1f} MiB",
                    share < 0.1 and resident < 40, [])


NUMBERS = [memcpy_128m, scattered_8192, contiguous_list, direct_4k, hop_4k, direct_32, asleep_4k,
           async_blocks, tcp_large_default, tcp_large_jumbo, tcp_16k, tcp_16k_async, device_pipeline,
           python_4k, python_blocks, flat, idle, direct_threshold]


def _speeds(work, results, raw=""):
    """A line of the second table: GB/s and latencies of both directions."""
    results = _by_op(results)
    rates = [results[op]["gb_per_s"] for op in ("write", "read")]
    middles = [results[op]["p50_us"] for op in ("write", "read")]
    tails = [results[op]["p99_us"] / results[op]["p50_us"] for op in ("write", "read")]
    return Measured(work, raw, f"{_both(rates, '{:.2f}')} GB/s, p50 {_both(middles, '{:.1f}')} us, "
                    f"p99 {_both(tails, '{:.1f}')} x p50", max(tails) < 10, [])


def _tcp(lab, work, size, iterations, *arguments):
    """Two daemons over loopback, as others measure, and UCX's puts in the same run."""
    ucx = lab.ucx("ucp_put_bw", size, iterations)
    raw = "not installed" if ucx is None else f"{ucx[1]:.2f} GB/s"
    return _speeds(work, lab.bench_over_loopback(*arguments), raw)


def others_tcp_4k(lab):
    # Its latency is half of a ping-pong; a transfer of ours ends with the target's answer.
    ucx = lab.ucx("ucp_put_lat", 4096, 20000)
    raw = "not installed" if ucx is None else f"{2 * ucx[0]:.1f} us there and back"
    return _speeds("TCP 4 KiB, one at a time", lab.bench_over_loopback("--block", "4K"), raw)


def others_tcp_64k(lab):
    return _tcp(lab, "TCP 64 KiB x 32", 65536, 20000, "--block", "64K", "--batch", "32")


def others_tcp_1m(lab):
    return _tcp(lab, "TCP 1 MiB (in cache)", MIB, 3000, "--block", "1M")


def others_tcp_1m_async(lab):
    return _tcp(lab, "TCP 1 MiB (in cache), eight under way", MIB, 3000, "--block", "1M", "--async",
                "--depth", "8")


def others_tcp_16m(lab):
    return _tcp(lab, "TCP 16 MiB", 16 * MIB, 200, "--block", "16M")


def others_local_4k(lab):
    return _speeds("same node 4 KiB", lab.bench(lab.local(), "--block", "4K"))


def others_local_32(lab):
    return _speeds("same node 32 x 16 KiB", lab.bench(lab.local(), "--block", "16K", "--batch", "32"))


def others_local_16m(lab):
    return _speeds("same node 16 MiB x 32", lab.bench(lab.local(), "--block", "16M", "--batch", "32"))


OTHERS = [others_tcp_4k, others_tcp_64k, others_tcp_1m, others_tcp_1m_async, others_tcp_16m,
          others_local_4k, others_local_32, others_local_16m]
