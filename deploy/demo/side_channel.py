"""The demo's own metadata channel: one JSON object per line over TCP.

Inference frameworks bring such a channel themselves; HIXL moves the memory, not the metadata.
"""

import json
import socket
import time

MAX_LINE = 1 << 20


class SideChannel:
    def __init__(self, connection):
        self._connection = connection
        self._file = connection.makefile("rwb")

    @classmethod
    def accept(cls, host, port, timeout):
        """Waits for the one peer of this run."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.create_server((host, port), family=family, backlog=1) as server:
            server.settimeout(timeout)
            connection, _ = server.accept()
        connection.settimeout(timeout)
        return cls(connection)

    @classmethod
    def connect(cls, host, port, timeout):
        """The peer may still be loading its model: refused connections are tried again."""
        deadline = time.monotonic() + timeout
        while True:
            try:
                return cls(socket.create_connection((host, port), timeout=timeout))
            except ConnectionRefusedError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    def send(self, message):
        self._file.write(json.dumps(message).encode() + b"\n")
        self._file.flush()

    def receive(self):
        line = self._file.readline(MAX_LINE)
        if not line.endswith(b"\n"):
            raise ConnectionError("the other process closed the side channel")
        return json.loads(line)

    def close(self):
        self._file.close()
        self._connection.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
