"""Raw, hostile or broken programs at the daemon's doors: refused by name, and the daemon goes on.

These speak the protocols themselves, since the client library would never send such things. That
the daemon is alive afterwards is checked by the fixture that made it.
"""

import os
import resource
import socket
import struct
import time
from pathlib import Path

import grpc
import pytest
from harness.daemon import new_cluster_key
from harness.fd_channel import F_SEAL_GROW, FdChannel, memfd
from harness.peer import PARAM_INVALID, SUCCESS, engine_id, free_port
from harness.rpc import error_detail, messages
from harness.wait import eventually

MIB = 1 << 20


@pytest.fixture
def node(daemon):
    return daemon()


@pytest.fixture
def session(node):
    with node.fd_channel() as channel:
        assert channel.hello().WhichOneof("body") == "welcome"
        yield channel


def detail_of(answer):
    assert answer.WhichOneof("body") == "error", answer
    return messages("hixl/v1/error").ErrorDetail.FromString(answer.error.detail)


def refused(answer, *words):
    """The answer is an error whose message or allowed values hold every word."""
    detail = detail_of(answer)
    assert detail.code == PARAM_INVALID
    for word in words:
        assert word in answer.error.message + detail.allowed, answer


def open_engine(rpc):
    return rpc.engine("OpenEngine", local_engine=f"127.0.0.1:{free_port()}").engine_handle


def register(rpc, engine, **registration):
    message = messages("hixl/v1/engine").MemoryRegistration(type=2, **registration)
    return rpc.engine("RegisterMemory", engine_handle=engine, registrations=[message])


# --- the fd channel -----------------------------------------------------------------------------


def test_welcome_brings_a_token_that_opens_the_grpc_door(node, session):
    assert len(session.token) == 32 and len(session.welcome.incarnation) > 0
    with node.rpc(session.token) as rpc:
        assert open_engine(rpc) != 0


@pytest.mark.parametrize("kind, word", [("pipe", "pipe"), ("directory", "directory"), ("file", "file"),
                                        ("socket", "socket"), ("device", "device")])
def test_a_descriptor_that_is_no_memfd_is_refused_by_name(session, tmp_path, kind, word):
    (tmp_path / "file").write_bytes(bytes(4096))
    opened = {
        "pipe": lambda: os.pipe()[0],
        "directory": lambda: os.open(tmp_path, os.O_RDONLY),
        "file": lambda: os.open(tmp_path / "file", os.O_RDWR),
        "socket": lambda: socket.socket().detach(),
        "device": lambda: os.open("/dev/zero", os.O_RDWR),
    }[kind]()
    refused(session.put_memory(4096, [opened]), word, "memfd")
    os.close(opened)


def test_a_memfd_without_the_shrink_seal_is_refused(session):
    for seals in (0, F_SEAL_GROW):
        descriptor = memfd(4096, seals)
        refused(session.put_memory(4096, [descriptor]), "F_SEAL_SHRINK")
        os.close(descriptor)


def test_a_memfd_shorter_than_announced_is_refused(session):
    descriptor = memfd(4096)
    refused(session.put_memory(8192, [descriptor]), "4096", "8192")
    os.close(descriptor)


def test_too_few_and_too_many_descriptors_are_refused(session):
    assert detail_of(session.put_memory(4096, [])).code == PARAM_INVALID
    descriptor = memfd(4096)
    assert detail_of(session.put_memory(4096, [descriptor, descriptor])).code == PARAM_INVALID
    os.close(descriptor)


def test_a_shared_memfd_cannot_be_shrunk_afterwards_and_stays_readable(node, session):
    descriptor = memfd(MIB)
    handle = session.put_memory(MIB, [descriptor]).memory_handle.handle
    with node.rpc(session.token) as rpc:
        engine = open_engine(rpc)
        shared = messages("hixl/v1/engine").SharedMemory(handle=handle)
        assert register(rpc, engine, address=0x10000000, length=MIB, shared_memory=shared).region_ids
        with pytest.raises(OSError):
            os.ftruncate(descriptor, 4096)
    os.close(descriptor)


def test_a_range_beyond_the_memfd_and_an_unknown_handle_are_refused(node, session):
    descriptor = memfd(MIB)
    handle = session.put_memory(MIB, [descriptor]).memory_handle.handle
    shared = messages("hixl/v1/engine").SharedMemory
    with node.rpc(session.token) as rpc:
        engine = open_engine(rpc)
        for wrong in (shared(handle=handle, offset=1), shared(handle=handle, offset=(1 << 64) - 1),
                      shared(handle=handle + 12345)):
            with pytest.raises(grpc.RpcError) as problem:
                register(rpc, engine, address=0x10000000, length=MIB, shared_memory=wrong)
            assert error_detail(problem.value).code == PARAM_INVALID
    os.close(descriptor)


def test_packets_that_are_no_message_and_packets_that_are_too_long(node, session):
    for data in (b"\xff" * 64, b"\x12\xff\xff\xff\xff\x0f"):
        with node.fd_channel() as channel:
            channel.send_raw(data)
            ends_with_error_or_close(channel)
    with node.fd_channel() as channel:
        channel.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        channel.send_raw(b"\x0a" * (128 * 1024 + 1))
        ends_with_error_or_close(channel)
    assert session.put_memory(4096, []).WhichOneof("body") == "error", "other sessions go on"


def test_garbage_instead_of_a_greeting_ends_the_channel_with_a_word(node):
    with node.fd_channel() as channel:
        channel.send_raw(b"GET / HTTP/1.1\r\n\r\n")
        assert channel.receive()[0].WhichOneof("body") == "error"
        assert channel.receive()[0].WhichOneof("body") == "goodbye"


def ends_with_error_or_close(channel):
    try:
        assert channel.receive()[0].WhichOneof("body") in ("error", "goodbye")
    except (ConnectionError, OSError):
        pass


def test_a_first_packet_that_is_no_hello_and_a_wrong_version(node):
    with node.fd_channel() as channel:
        descriptor = memfd(4096)
        try:
            answer = channel.put_memory(4096, [descriptor])
            assert detail_of(answer).code != SUCCESS
        except ConnectionError:
            pass
        os.close(descriptor)
    with node.fd_channel() as channel:
        assert channel.hello(protocol_version=0).WhichOneof("body") == "error"


# --- the gRPC door ------------------------------------------------------------------------------


@pytest.mark.parametrize("token", [None, b"", b"short", bytes(32), os.urandom(32), os.urandom(4096)])
def test_missing_malformed_and_forged_tokens_are_unauthenticated(node, session, token):
    with node.rpc(token) as rpc, pytest.raises(grpc.RpcError) as problem:
        open_engine(rpc)
    assert problem.value.code() == grpc.StatusCode.UNAUTHENTICATED


def test_a_token_dies_with_its_session(node):
    with node.fd_channel() as channel:
        channel.hello()
        token = channel.token
    with node.rpc(token) as rpc:
        # The daemon notices the closed channel at once, but not within the same instruction.
        for _ in range(200):
            try:
                open_engine(rpc)
            except grpc.RpcError as problem:
                assert problem.code() == grpc.StatusCode.UNAUTHENTICATED
                return
    pytest.fail("the token of an ended session still opens engines")


def test_another_sessions_engine_is_unknown(node, session):
    with node.rpc(session.token) as rpc:
        engine = open_engine(rpc)
    with node.fd_channel() as other:
        other.hello()
        with node.rpc(other.token) as rpc:
            for method in ("CloseEngine", "RegisterMemory", "GetTransferStatus"):
                with pytest.raises(grpc.RpcError):
                    rpc.engine(method, engine_handle=engine)
    with node.rpc(session.token) as rpc:
        rpc.engine("CloseEngine", engine_handle=engine)


def test_another_sessions_memory_handle_is_unknown(node, session):
    descriptor = memfd(MIB)
    handle = session.put_memory(MIB, [descriptor]).memory_handle.handle
    os.close(descriptor)
    with node.fd_channel() as other:
        other.hello()
        with node.rpc(other.token) as rpc:
            engine = open_engine(rpc)
            shared = messages("hixl/v1/engine").SharedMemory(handle=handle)
            with pytest.raises(grpc.RpcError):
                register(rpc, engine, address=0x10000000, length=MIB, shared_memory=shared)


def test_an_oversized_message_is_refused(daemon):
    node = daemon(config={"limits": {"max_rpc_message_bytes": "1MiB"}})
    with node.fd_channel() as channel:
        channel.hello()
        with node.rpc(channel.token) as rpc, pytest.raises(grpc.RpcError) as problem:
            rpc.engine("OpenEngine", local_engine="x" * (2 * MIB))
    assert problem.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED


def test_batches_whose_arrays_differ_in_length_are_refused(node, session):
    batch = messages("hixl/v1/types").TransferBatch(local_addresses=[1, 2], remote_addresses=[1],
                                                    lengths=[1])
    with node.rpc(session.token) as rpc:
        engine = open_engine(rpc)
        with pytest.raises(grpc.RpcError) as problem:
            rpc.engine("Transfer", engine_handle=engine, remote_engine="127.0.0.1:1", op=1, batch=batch,
                       timeout_ms=1000)
    assert error_detail(problem.value).code != SUCCESS


def test_garbage_on_the_grpc_socket(node):
    for data in (b"GET / HTTP/1.1\r\n\r\n", os.urandom(65536)):
        with socket.socket(socket.AF_UNIX) as raw:
            raw.settimeout(10)
            raw.connect(str(node.socket))
            try:
                raw.sendall(data)
                raw.shutdown(socket.SHUT_WR)
                while raw.recv(65536):
                    pass
            except OSError:
                pass


def test_a_daemon_whose_descriptors_ran_out_serves_again(node):
    in_use = len(list(Path(f"/proc/{node.pid}/fd").iterdir()))
    before = resource.prlimit(node.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(node.pid, resource.RLIMIT_NOFILE, (in_use + 200, before[1]))
    raw = []
    try:
        refused = False
        while not refused:
            assert len(raw) < in_use + 200, "more connections than descriptors"
            raw.append(socket.socket(socket.AF_UNIX))
            raw[-1].settimeout(5)
            raw[-1].connect(str(node.socket))
            # gRPC greets with its settings; who is refused sees the end.
            try:
                refused = not raw[-1].recv(1)
            except ConnectionResetError:
                refused = True
        eventually(lambda: f"RLIMIT_NOFILE is {in_use + 200}" in node.log())
    finally:
        for connection in raw:
            connection.close()
    eventually(lambda: node.ctl("health").returncode == 0)
    resource.prlimit(node.pid, resource.RLIMIT_NOFILE, before)


def test_sessions_refused_by_the_hundred_do_not_fill_the_log(daemon):
    node = daemon(config={"limits": {"max_sessions_per_uid": 1}})
    knocks = 300
    with node.fd_channel() as held:
        assert held.hello().WhichOneof("body") == "welcome"
        start = time.monotonic()
        for _ in range(knocks):
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as raw:
                raw.settimeout(10)
                raw.connect(str(node.fd_socket))
                assert b"limits.max_sessions_per_uid" in raw.recv(65536)
        seconds = time.monotonic() - start
    lines = [line for line in node.log().splitlines() if "session refused" in line]
    # One at once, and one per second.
    assert 1 <= len(lines) <= 2 + seconds < knocks


# --- the network door ---------------------------------------------------------------------------


def fuzz_inputs():
    yield b""
    yield struct.pack("<I", 0xFFFFFFFF)
    yield struct.pack("<I", 8) + b"\xff" * 8
    yield struct.pack("<I", 0)
    yield struct.pack("<IBBH", 0x584C4948, 1, 2, 0) + bytes(40)
    yield struct.pack("<IBBH", 0x584C4948, 99, 99, 0xFFFF) + b"\xff" * 40
    for size in (1, 47, 48, 49, 4096, 1 << 20):
        yield os.urandom(size)


def test_garbage_on_an_engines_port(node, peer):
    owner, other = peer(node), peer(node)
    remote, local = owner.memory(MIB, seed=3), other.memory(MIB)
    before = remote.crc()
    host, port = owner.engine.rsplit(":", 1)
    for data in fuzz_inputs():
        with socket.create_connection((host, int(port)), timeout=10) as raw:
            try:
                raw.sendall(data)
                raw.shutdown(socket.SHUT_WR)
                while raw.recv(65536):
                    pass
            except OSError:
                pass
    assert remote.crc() == before
    assert other.connect(owner.engine) == SUCCESS
    assert other.transfer(owner.engine, "READ", [(local.address, remote.address, MIB)]) == SUCCESS
    assert local.crc() == before


def test_a_peer_with_another_cluster_key_reaches_nothing(hosts, daemon, peer, tmp_path):
    pair = hosts(2)
    keys = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        keys.append(new_cluster_key(tmp_path / name))
    nodes = [daemon(host=host, cluster_key=key) for host, key in zip(pair, keys)]
    here, there = peer(nodes[0]), peer(nodes[1])
    assert here.connect(there.engine, timeout_ms=3000) not in (SUCCESS,)
    with pytest.raises(AssertionError):
        assert there.connect(here.engine, timeout_ms=3000) == SUCCESS


def test_a_daemon_without_a_key_refuses_to_listen_beyond_loopback(hosts, daemon, worker):
    host = hosts(1)[0]
    node = daemon(host=host)
    client = worker(node)
    code = "(lambda e: (e.initialize(name), e.initialize('127.0.0.1:26000')))(hixl.Hixl())"
    refused_status, loopback_status = client.run(code, name=engine_id(node))
    assert refused_status != SUCCESS and loopback_status == SUCCESS
