"""A client process with one engine and its memory, steered by a test."""

import socket

SUCCESS, PARAM_INVALID, TIMEOUT, NOT_CONNECTED, ALREADY_CONNECTED = 0, 103900, 103901, 103902, 103903
UNSUPPORTED, RESOURCE_EXHAUSTED, FAILED = 103905, 203900, 503900

# Where the next engine id of a test may listen; each test takes its own.
_PRELUDE = """
import ctypes, random, zlib
engine = hixl.Hixl()
buffers = {}

class Plain:
    # Ordinary memory of this process, page aligned inside a larger allocation.
    def __init__(self, nbytes):
        self._memory = ctypes.create_string_buffer(nbytes + 4096)
        self.address = (ctypes.addressof(self._memory) + 4095) & ~4095
        self.nbytes = nbytes
        self.view = memoryview((ctypes.c_char * nbytes).from_address(self.address)).cast('B')

def make(name, kind, nbytes, seed, register=True):
    if kind == 'plain':
        memory = Plain(nbytes)
        view = memory.view
    else:
        memory = engine.allocate(nbytes, mem_type=hixl.MemType.MEM_HOST)
        view = memoryview(memory).cast('B')[:nbytes]
    view[:] = random.Random(seed).randbytes(nbytes) if seed is not None else bytes(nbytes)
    buffers[name] = (memory, view)
    status, handle = 0, 0
    if register:
        status, handle = engine.register_mem(hixl.MemDesc(memory.address, nbytes), hixl.MemType.MEM_HOST)
    return status, handle, memory.address

def crc(name, offset=0, length=None):
    view = buffers[name][1]
    return zlib.crc32(view[offset:offset + length] if length is not None else view[offset:])

def descriptors(pieces):
    return [hixl.TransferOpDesc(l, r, n) for l, r, n in pieces]
"""


def free_port():
    """A port that was free a moment ago on this machine's loopback."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def engine_id(daemon, port=None):
    """An engine id on the daemon's host, or on loopback."""
    if daemon.host:
        return f"{daemon.host.address}:{port or 26000}"
    return f"127.0.0.1:{port or free_port()}"


class Memory:
    def __init__(self, peer, name, handle, address, nbytes):
        self.peer, self.name = peer, name
        self.handle, self.address, self.nbytes = handle, address, nbytes

    def crc(self, offset=0, length=None):
        return self.peer.run(f"crc({self.name!r}, {offset}, {length})")


class Peer:
    """`engine` is its engine's id; all calls run in the client process."""

    def __init__(self, worker, engine, options=None, daemon=None):
        self.worker = worker
        self.engine = engine
        self.daemon = daemon
        self._memories = 0
        worker.run(_PRELUDE)
        status = worker.run("engine.initialize(name, options)", name=engine, options=options or {})
        assert status == SUCCESS, f"initialize {engine}: {status}"

    def run(self, code, timeout=60, **values):
        return self.worker.run(code, timeout, **values)

    def memory(self, nbytes, kind="pool", seed=None, register=True):
        """Memory of `nbytes`, zeroed or filled from `seed`, registered unless told otherwise."""
        self._memories += 1
        name = f"m{self._memories}"
        status, handle, address = self.run(
            f"make({name!r}, {kind!r}, {nbytes}, {seed!r}, {register!r})")
        assert status == SUCCESS, f"register {nbytes} bytes: {status}"
        return Memory(self, name, handle, address, nbytes)

    def connect(self, other, timeout_ms=5000):
        return self.run("engine.connect(remote, timeout_in_millis=ms)", remote=other, ms=timeout_ms)

    def transfer_code(self, op):
        return f"engine.transfer_sync(remote, hixl.TransferOp.{op}, descriptors(pieces), ms)"

    def transfer(self, other, op, pieces, timeout_ms=20_000):
        """pieces: (local address, remote address, length) each. Returns the status."""
        return self.run(self.transfer_code(op), remote=other, pieces=pieces, ms=timeout_ms)

    def start_transfer(self, other, op, pieces, timeout_ms=20_000):
        self.worker.start(self.transfer_code(op), remote=other, pieces=pieces, ms=timeout_ms)
