"""Speaks hixld's gRPC services without the client library, as any program could."""

import importlib
import os
import subprocess
import sys
import tempfile
from functools import lru_cache

# The test process forks only to exec; gRPC's own fork handling would stop its threads for it.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

import grpc  # noqa: E402

from .installation import ROOT  # noqa: E402

TOKEN_KEY = "hixl-session-bin"
_PROTOS = [
    "proto/hixl/v1/types.proto",
    "proto/hixl/v1/error.proto",
    "proto/hixl/v1/engine.proto",
    "proto/hixl/v1/admin.proto",
    "proto/fdchannel/fdchannel.proto",
    "proto/wire/peer.proto",
]


@lru_cache(maxsize=None)
def _generated():
    """Generates the message modules once per run, from the tree's own proto files."""
    out = tempfile.mkdtemp(prefix="hixld-protos-")
    subprocess.run(["protoc", f"--proto_path={ROOT}", f"--python_out={out}", *_PROTOS],
                   cwd=ROOT, check=True)
    sys.path.insert(0, out)
    return out


@lru_cache(maxsize=None)
def messages(name):
    """The generated module of one proto file, such as messages("hixl/v1/engine")."""
    _generated()
    return importlib.import_module("proto." + name.replace("/", ".") + "_pb2")


def error_detail(error):
    """hixl.v1.ErrorDetail of a gRPC error, or None."""
    serialized = dict(error.trailing_metadata() or ()).get("grpc-status-details-bin")
    if serialized is None:
        return None
    from google.protobuf import any_pb2  # noqa: PLC0415
    # google.rpc.Status without its module: field 3 holds the details.
    for blob in _length_delimited_fields(serialized, number=3):
        detail = any_pb2.Any.FromString(blob)
        if detail.Is(messages("hixl/v1/error").ErrorDetail.DESCRIPTOR):
            return messages("hixl/v1/error").ErrorDetail.FromString(detail.value)
    return None


def _varint(data, position):
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, position


def _length_delimited_fields(data, number):
    position = 0
    while position < len(data):
        key, position = _varint(data, position)
        value, position = _varint(data, position)
        if key & 7 == 2:
            if key >> 3 == number:
                yield data[position : position + value]
            position += value


class Rpc:
    """One gRPC channel to a daemon's socket."""

    def __init__(self, socket_path, token=None):
        options = [("grpc.initial_reconnect_backoff_ms", 20), ("grpc.max_reconnect_backoff_ms", 200),
                   ("grpc.use_local_subchannel_pool", 1), ("grpc.max_send_message_length", -1)]
        self._channel = grpc.insecure_channel(f"unix:{socket_path}", options=options)
        self.token = token

    def call(self, service, method, request, timeout=10):
        """Calls hixl.v1.<service>/<method>; the response type is <method>Response."""
        module = messages("hixl/v1/admin" if service == "AdminService" else "hixl/v1/engine")
        response = getattr(module, f"{method}Response")
        stub = self._channel.unary_unary(f"/hixl.v1.{service}/{method}",
                                         request_serializer=lambda m: m.SerializeToString(),
                                         response_deserializer=response.FromString)
        metadata = [(TOKEN_KEY, self.token)] if self.token is not None else []
        return stub(request, timeout=timeout, metadata=metadata)

    def engine(self, method, timeout=10, **fields):
        request = getattr(messages("hixl/v1/engine"), f"{method}Request")(**fields)
        return self.call("EngineService", method, request, timeout)

    def admin(self, method, timeout=10, **fields):
        request = getattr(messages("hixl/v1/admin"), f"{method}Request")(**fields)
        return self.call("AdminService", method, request, timeout)

    def serving(self, timeout=5):
        """Whether grpc.health.v1 answers SERVING within `timeout` seconds."""
        stub = self._channel.unary_unary("/grpc.health.v1.Health/Check")
        try:
            return stub(b"", timeout=timeout, wait_for_ready=True) == b"\x08\x01"
        except grpc.RpcError:
            return False

    def close(self):
        self._channel.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
