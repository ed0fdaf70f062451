"""Starts a real hixld, watches it, and says what it logged when something went wrong."""

import json
import os
import re
import secrets
import signal
import subprocess
import time
from pathlib import Path

from .fd_channel import FdChannel
from .rpc import Rpc

START_TIMEOUT_S = 60
STOP_TIMEOUT_S = 30
_SANITIZER_REPORT = re.compile(
    r"ERROR: (Address|Leak)Sanitizer|WARNING: ThreadSanitizer|runtime error:|FATAL: ThreadSanitizer")


# Settings of every daemon that does not say otherwise itself, as JSON: the same tests over other
# transports and devices.
_SETTINGS = json.loads(os.environ.get("HIXLD_TEST_SETTINGS", "{}"))


def _merged(defaults, settings):
    if not isinstance(defaults, dict) or not isinstance(settings, dict):
        return settings
    return {**defaults, **{key: _merged(defaults.get(key), value) for key, value in settings.items()}}


def new_cluster_key(directory):
    path = Path(directory) / "cluster.key"
    path.write_text(secrets.token_hex(32))
    path.chmod(0o600)
    return path


class Daemon:
    """One hixld in a runtime directory of its own, on `host` (a Host) or on this machine."""

    def __init__(self, installation, directory, host=None, config=None, cluster_key=None,
                 arguments=(), may_ptrace=True):
        self.installation = installation
        self.directory = Path(directory)
        self.host = host
        self.socket = self.directory / "hixld.sock"
        self.fd_socket = Path(f"{self.socket}.fd")
        self.log_path = self.directory / "hixld.log"
        self.config_path = self.directory / "hixld.yaml"
        self.config_path.write_text(json.dumps(_merged(_SETTINGS, {"version": 1, **(config or {})})))
        self._arguments = list(arguments)
        # Without the right, plain memory is copied by the client's own process.
        self._prefix = [] if may_ptrace else ["setpriv", "--bounding-set=-sys_ptrace",
                                              "--inh-caps=-sys_ptrace"]
        if cluster_key:
            self._arguments += ["--cluster-key-file", str(cluster_key)]
        # True once a test means to end the daemon itself.
        self.may_be_gone = False
        self.process = None

    @property
    def pid(self):
        return self.process.pid

    def spawn(self):
        """Starts the process without waiting for anything."""
        command = [*self._prefix, self.installation.hixld, "--config", self.config_path, "--socket", self.socket,
                   *self._arguments]
        if self.host:
            command = self.host.wrap(command)
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen([str(part) for part in command], cwd=self.directory,
                                            stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        return self

    def start(self):
        """Starts the process and waits until it serves."""
        self.spawn()
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self.serving(timeout=0.5):
            if self.process.poll() is not None:
                raise RuntimeError(f"hixld ended with {self.process.returncode}:\n{self.log()}")
            if time.monotonic() > deadline:
                raise TimeoutError(f"hixld does not serve after {START_TIMEOUT_S} s:\n{self.log()}")
        return self

    def serving(self, timeout=5):
        with Rpc(self.socket) as rpc:
            return rpc.serving(timeout)

    def rpc(self, token=None):
        return Rpc(self.socket, token)

    def fd_channel(self):
        return FdChannel(self.fd_socket)

    def log(self):
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def environment(self):
        """What a client process needs to find this daemon."""
        return {**os.environ, "HIXLD_SOCKET": str(self.socket), "HIXLD_NO_AUTOSTART": "1",
                "PYTHONPATH": str(self.installation.python_path), "PYTHONDONTWRITEBYTECODE": "1"}

    def ctl(self, *arguments, timeout=30):
        """Runs hixlctl against this daemon."""
        command = [self.installation.hixlctl, "--socket", self.socket, *arguments]
        return subprocess.run([str(part) for part in command], capture_output=True, text=True,
                              timeout=timeout, check=False)

    def wrap(self, command):
        return self.host.wrap(command) if self.host else [str(part) for part in command]

    def assert_alive(self):
        assert self.process.poll() is None, f"hixld ended with {self.process.returncode}"
        assert self.serving(), "hixld runs but its health is not SERVING"

    def kill(self):
        self.may_be_gone = True
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(STOP_TIMEOUT_S)

    def stop(self):
        """Ends the daemon as a service manager would and returns its exit code."""
        self.may_be_gone = True
        self.process.terminate()
        try:
            return self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise

    def finish(self):
        """End of a test: alive, unless the test ended it; then a clean stop and a clean log."""
        try:
            if self.process is None:
                return
            if not self.may_be_gone:
                self.assert_alive()
            if self.process.poll() is None:
                code = self.stop()
                assert code == 0, f"hixld stopped with {code}"
            report = _SANITIZER_REPORT.search(self.log())
            assert report is None, f"sanitizer: {self.log()[report.start():][:6000]}"
        finally:
            if self.process is not None and self.process.poll() is None:
                self.kill()
