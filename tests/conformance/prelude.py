# Read by conftest.py and run in the client process, where `hixl` is imported.
import ctypes
import json
import os
import socket
import threading
import time

READ, WRITE = hixl.TransferOp.READ, hixl.TransferOp.WRITE
HOST, DEVICE = hixl.MemType.MEM_HOST, hixl.MemType.MEM_DEVICE
engines, kept = [], []


def free_name():
    with socket.socket() as probe:
        probe.bind(('127.0.0.1', 0))
        return '127.0.0.1:%d' % probe.getsockname()[1]


def engine(options=None, name='127.0.0.1:0'):
    made = hixl.Hixl()
    status = made.initialize(name, options or {})
    assert status == 0, (status, hixl.last_error())
    engines.append(made)
    return made


def listening(options=None):
    name = free_name()
    return engine(options, name), name


def initialize(options=None, name='127.0.0.1:0'):
    # The status alone; the engine is gone at once.
    return hixl.Hixl().initialize(name, options or {})


def resources(**fields):
    # Dots in names are written as double underscores.
    return {'GlobalResourceConfig': json.dumps({k.replace('__', '.'): v for k, v in fields.items()})}


def memory(nbytes, fill=0):
    block = ctypes.create_string_buffer(bytes([fill]) * nbytes, nbytes)
    kept.append(block)
    return ctypes.addressof(block)


def content(address, nbytes):
    return ctypes.string_at(address, nbytes)


def register(made, address, nbytes, kind=HOST):
    status, handle = made.register_mem(hixl.MemDesc(address, nbytes), kind)
    assert status == 0, (status, hixl.last_error())
    return handle


def piece(local, remote, nbytes):
    return hixl.TransferOpDesc(local, remote, nbytes)


def ended(made, request, seconds=20):
    # The last status of an asynchronous transfer.
    deadline = time.monotonic() + seconds
    while True:
        status, state = made.get_transfer_status(request)
        if state != hixl.TransferStatus.WAITING or time.monotonic() > deadline:
            return status, state.name


def outcome(made, peer, op, descs):
    # Of an asynchronous transfer: the code that it was refused with, else the name of its end.
    status, request = made.transfer_async(peer, op, descs)
    return ended(made, request)[1] if status == 0 else status


def until(condition, seconds=20):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.002)
    return True


def pair(options=None, nbytes=4096, fill=7):
    # Two engines; the first has a link to the second, both have memory of `nbytes`.
    here = engine(options)
    there, name = listening(options)
    local, remote = memory(nbytes), memory(nbytes, fill)
    register(here, local, nbytes)
    register(there, remote, nbytes)
    assert here.connect(name, 5000) == 0, hixl.last_error()
    return here, there, name, local, remote


def clean():
    while engines:
        engines.pop().finalize()
    kept.clear()
