"""Speaks hixld's fd channel raw, well-behaved or not."""

import ctypes
import fcntl
import os
import socket

from .rpc import messages

F_ADD_SEALS = 1033
F_SEAL_SEAL, F_SEAL_SHRINK, F_SEAL_GROW = 1, 2, 4
TIMEOUT_S = 20


def memfd(size, seals=F_SEAL_SHRINK | F_SEAL_GROW):
    """A memfd of `size` bytes; `seals=0` leaves it unsealed."""
    descriptor = os.memfd_create("hixld-test", os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, size)
    if seals:
        fcntl.fcntl(descriptor, F_ADD_SEALS, seals)
    return descriptor


class FdChannel:
    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(TIMEOUT_S)
        self.socket.connect(str(path))
        self._requests = 0
        self._probe = ctypes.create_string_buffer(os.urandom(16), 16)
        self.welcome = None

    def send_raw(self, data, fds=()):
        socket.send_fds(self.socket, [data], list(fds))

    def receive(self):
        """The next message and its descriptors; ConnectionError when the daemon closed."""
        data, fds, _, _ = socket.recv_fds(self.socket, 128 * 1024, 4)
        if not data:
            raise ConnectionError("the daemon closed the fd channel")
        return messages("fdchannel/fdchannel").FdMessage.FromString(data), fds

    def ask(self, fds=(), **body):
        """Sends one message, given as FdMessage's fields, and returns the answer to it."""
        self._requests += 1
        message = messages("fdchannel/fdchannel").FdMessage(request_id=self._requests, **body)
        self.send_raw(message.SerializeToString(), fds)
        while True:
            answer, received = self.receive()
            if answer.request_id == self._requests:
                return answer, received

    def hello(self, **overrides):
        """Opens the session and returns the Welcome (or the Error)."""
        fields = {"protocol_version": 1, "client_name": "raw", "library_version": "test",
                  "probe_address": ctypes.addressof(self._probe), "probe_value": self._probe.raw}
        fields.update(overrides)
        hello = messages("fdchannel/fdchannel").Hello(**fields)
        answer, _ = self.ask(hello=hello)
        if answer.WhichOneof("body") == "welcome":
            self.welcome = answer.welcome
        return answer

    def put_memory(self, size, fds):
        put = messages("fdchannel/fdchannel").PutMemory(size=size)
        answer, _ = self.ask(fds=fds, put_memory=put)
        return answer

    @property
    def token(self):
        return self.welcome.session_token

    def close(self):
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
