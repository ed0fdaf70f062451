"""Measures a KV-shaped transfer, and beside it what it can be compared with in the same run."""

import json
import shutil
import statistics
import subprocess
import time

import numpy as np

PIECE = 16 * 1024
ROUNDS = 7
IPERF_SECONDS = 2


def _rate(nbytes, action, rounds=ROUNDS):
    """Median GB/s of `action`, after one round that warms page tables and connections."""
    action()
    seconds = []
    for _ in range(rounds):
        start = time.perf_counter()
        action()
        seconds.append(time.perf_counter() - start)
    return nbytes / statistics.median(seconds) / 1e9


def scattered(local, remote, nbytes, seed):
    """Pieces of 16 KiB that cover both buffers, each side in an order of its own."""
    random = np.random.default_rng(seed)
    count = nbytes // PIECE
    sources = random.permutation(count) * PIECE + remote
    targets = random.permutation(count) * PIECE + local
    return [(int(t), int(s), PIECE) for t, s in zip(targets, sources)]


def transfer_rates(read, local, remote, nbytes):
    """GB/s of one large piece and of scattered pieces. `read` issues one batch."""
    pieces = scattered(local, remote, nbytes, seed=3)
    return {
        "one_block": _rate(nbytes, lambda: read([(local, remote, nbytes)])),
        "scattered": _rate(nbytes, lambda: read(pieces)),
    }


def memcpy_rate(nbytes):
    """GB/s of one thread copying between two warm buffers."""
    source, target = np.ones(nbytes, np.uint8), np.zeros(nbytes, np.uint8)
    return _rate(nbytes, lambda: np.copyto(target, source))


def start_iperf_server(host, port):
    """A server for one client, listening when this returns; None where iperf3 is not installed."""
    if shutil.which("iperf3") is None:
        return None
    command = ["iperf3", "-s", "-1", "--forceflush", "-B", host, "-p", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    for line in server.stdout:
        if "listening" in line:
            return server
    raise RuntimeError(f"iperf3 server on {host}:{port} ended with {server.wait()}")


def iperf_rate(host, port, streams):
    """GB/s that `streams` TCP streams carry from the server to here."""
    command = ["iperf3", "-c", host, "-p", str(port), "-R", "-P", str(streams), "-J",
               "-t", str(IPERF_SECONDS)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    report = json.loads(result.stdout or "{}")
    if result.returncode != 0 or "error" in report:
        raise RuntimeError(f"iperf3: {report.get('error') or result.stderr.strip()}")
    return report["end"]["sum_received"]["bits_per_second"] / 8e9
