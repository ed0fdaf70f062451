"""What both demo processes do with hixl: open an engine, take pool memory, register it."""

from contextlib import contextmanager

import hixl

_STATUS_NAMES = {
    getattr(hixl, name): name
    for name in ("SUCCESS PARAM_INVALID TIMEOUT NOT_CONNECTED ALREADY_CONNECTED NOTIFY_FAILED "
                 "UNSUPPORTED FAILED RESOURCE_EXHAUSTED").split()
}


def expect(status, what):
    """Ends the process with a clear line when a hixl call did not succeed."""
    if status != hixl.SUCCESS:
        raise SystemExit(f"{what}: {_STATUS_NAMES.get(status, status)}")


@contextmanager
def open_engine(name):
    engine = hixl.Hixl()
    expect(engine.initialize(name), f"initialize {name}")
    try:
        yield engine
    finally:
        engine.finalize()


def registered_buffer(engine, nbytes):
    """A buffer of the daemon's pool that peers may read and write."""
    buffer = engine.allocate(nbytes, mem_type=hixl.MemType.MEM_HOST)
    descriptor = hixl.MemDesc(buffer.address, buffer.nbytes)
    status, _ = engine.register_mem(descriptor, hixl.MemType.MEM_HOST)
    expect(status, f"register {buffer.nbytes} bytes")
    return buffer


def read_pieces(engine, peer, pieces, timeout_ms=300_000):
    """One batch of one-sided READs. `pieces`: (local address, remote address, length)."""
    descriptors = [hixl.TransferOpDesc(*piece) for piece in pieces]
    status = engine.transfer_sync(peer, hixl.TransferOp.READ, descriptors, timeout_ms)
    expect(status, f"read {len(descriptors)} pieces from {peer}")
