"""Buffers of the daemon's pool as NumPy arrays and torch tensors, without a copy."""

import pytest
from harness.peer import PARAM_INVALID, RESOURCE_EXHAUSTED, SUCCESS

MIB = 1 << 20


def test_numpy_sees_the_buffer_itself(daemon, peer):
    pytest.importorskip("numpy")
    here = peer(daemon())
    assert here.run("""
buffer = engine.allocate(1 << 20, mem_type=hixl.MemType.MEM_HOST)
array = buffer.numpy(dtype='float16', shape=(256, 2048))
array[3, 5] = 1.5
same = array.ctypes.data == buffer.address
bytes_there = memoryview(buffer).cast('B')[(3 * 2048 + 5) * 2:][:2].tobytes()
(same, array.shape, bytes_there.hex(), buffer.nbytes)
""") == [True, [256, 2048], "003e", MIB]


def test_an_array_keeps_its_memory_alive(daemon, peer):
    pytest.importorskip("numpy")
    here = peer(daemon())
    assert here.run("""
import gc
array = engine.allocate(1 << 20, mem_type=hixl.MemType.MEM_HOST).numpy()
gc.collect()
array[:] = 7
int(array.sum())
""") == 7 * MIB


def test_torch_sees_the_buffer_itself(daemon, peer):
    pytest.importorskip("torch")
    here = peer(daemon())
    assert here.run("""
import torch
buffer = engine.allocate(1 << 20, mem_type=hixl.MemType.MEM_HOST)
tensor = torch.from_dlpack(buffer)
shaped = buffer.torch(dtype='float32', shape=(512, 512))
shaped[1, 2] = 3.0
(tensor.data_ptr() == buffer.address == shaped.data_ptr(), list(shaped.shape), str(shaped.dtype),
 buffer.numpy('float32')[512 + 2].item())
""", timeout=120) == [True, [512, 512], "torch.float32", 3.0]


def test_a_tensor_of_one_process_arrives_in_anothers(two_peers):
    pytest.importorskip("numpy")
    here, there = two_peers
    local, remote = here.memory(MIB), there.memory(MIB)
    there.run(f"buffers[{remote.name!r}][0].numpy('float32')[:] = range(1 << 18)")
    assert here.connect(there.engine) == SUCCESS
    assert here.transfer(there.engine, "READ", [(local.address, remote.address, MIB)]) == SUCCESS
    assert here.run(f"buffers[{local.name!r}][0].numpy('float32').tolist()[-3:]") == [262141, 262142, 262143]


def test_freed_memory_can_be_taken_again(daemon, peer):
    here = peer(daemon(config={"pools": {"host": {"max_bytes": "256MiB"}}}))
    assert here.run("""
for _ in range(20):
    buffer = engine.allocate(100 << 20, mem_type=hixl.MemType.MEM_HOST)
    status, handle = engine.register_mem(hixl.MemDesc(buffer.address, buffer.nbytes), hixl.MemType.MEM_HOST)
    assert status == 0, status
    assert engine.deregister_mem(handle) == 0
    buffer.free()
True
""") is True


def test_an_exhausted_pool_is_an_error_that_names_the_limit(daemon, peer):
    here = peer(daemon(config={"pools": {"host": {"max_bytes": "128MiB"}}}))
    said = here.run("""
try:
    engine.allocate(1 << 30, mem_type=hixl.MemType.MEM_HOST)
    said = ''
except Exception as problem:
    said = str(problem)
said
""")
    assert "pools.host.max_bytes" in said


@pytest.mark.parametrize("place", ["daemon", "client"])
@pytest.mark.parametrize("op", ["READ", "WRITE"])
def test_device_memory_moves_whoever_copies_it(daemon, peer, place, op):
    node = daemon(config={"devices": {"sim": {"place": place}}})
    here, there = peer(node), peer(node)
    make = """
buffer = engine.allocate(3 << 20, mem_type=hixl.MemType.MEM_DEVICE)
memoryview(buffer).cast('B')[:] = random.Random(seed).randbytes(3 << 20)
buffers['device'] = (buffer, memoryview(buffer).cast('B'))
status, _ = engine.register_mem(hixl.MemDesc(buffer.address, buffer.nbytes), hixl.MemType.MEM_DEVICE)
(status, buffer.address)
"""
    (status_here, local), (status_there, remote) = here.run(make, seed=1), there.run(make, seed=2)
    assert (status_here, status_there) == (SUCCESS, SUCCESS)
    # An odd piece that lies in none of the copies' units.
    source = there if op == "READ" else here
    wanted = source.run("crc('device', 4097, (2 << 20) + 13)")
    assert here.connect(there.engine) == SUCCESS
    assert here.transfer(there.engine, op, [(local + 4097, remote + 4097, (2 << 20) + 13)]) == SUCCESS
    assert here.run("crc('device', 4097, (2 << 20) + 13)") == wanted
    assert there.run("crc('device', 4097, (2 << 20) + 13)") == wanted


@pytest.mark.parametrize("size", [0, -1])
def test_a_buffer_without_bytes_is_refused(daemon, peer, size):
    here = peer(daemon())
    assert here.run("""
try:
    engine.allocate(size, mem_type=hixl.MemType.MEM_HOST)
    refused = False
except Exception:
    refused = True
refused
""", size=size) is True


def test_a_buffer_of_two_gigabytes_and_one_byte(daemon, peer):
    node = daemon()
    # Nothing beyond what is registered may be reached.
    here, there = [peer(node, options={"BufferPool": "0:0"}) for _ in range(2)]
    size = (2 << 30) + 1
    code = """
buffer = engine.allocate(size, mem_type=hixl.MemType.MEM_HOST)
status, _ = engine.register_mem(hixl.MemDesc(buffer.address, size), hixl.MemType.MEM_HOST)
memoryview(buffer).cast('B')[size - 1] = mark
(status, buffer.address)
"""
    _, remote = there.run(code, size=size, mark=77)
    status, local = here.run(code, size=size, mark=0)
    assert status == SUCCESS
    assert here.connect(there.engine) == SUCCESS
    assert here.transfer(there.engine, "READ", [(local, remote, size)], timeout_ms=60_000) == SUCCESS
    assert here.run("memoryview(buffer).cast('B')[size - 1]", size=size) == 77
    assert here.transfer(there.engine, "READ", [(local, remote + 1, size)]) in (
        PARAM_INVALID, RESOURCE_EXHAUSTED, 503900)
