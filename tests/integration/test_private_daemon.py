"""Without any set-up: the client library starts a private daemon for its user."""

import fcntl
import json
import os
import subprocess
import time
from pathlib import Path

import pytest
from harness.wait import eventually
from harness.worker import PYTHON

PROGRAM = """
import hixl, json, os, sys
engine = hixl.Hixl()
status = engine.initialize("127.0.0.1")
print(json.dumps(status), flush=True)
sys.stdin.readline()
engine.finalize()
"""


@pytest.fixture
def home(installation, tmp_path):
    """The environment of a user without any daemon; the directory's daemons end with the test."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("HIXL")}
    runtime = tmp_path / "runtime"
    runtime.mkdir(mode=0o700)
    environment.update(XDG_RUNTIME_DIR=str(runtime), PYTHONPATH=str(installation.python_path),
                       HIXLD_DAEMON=str(installation.hixld), PYTHONDONTWRITEBYTECODE="1")
    return environment


class Client:
    def __init__(self, environment):
        self.process = subprocess.Popen([PYTHON, "-c", PROGRAM], env=environment, text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def status(self):
        return json.loads(self.process.stdout.readline() or "null")

    def end(self):
        self.process.communicate("\n", timeout=30)
        return self.process.returncode


def daemons_of(environment):
    """Pids of hixld processes whose command line names this runtime directory."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                command = file.read().decode(errors="replace")
        except OSError:
            continue
        if environment["XDG_RUNTIME_DIR"] in command and "hixld" in command.split("\0")[0]:
            found.append(int(pid))
    return found


def ends_within(environment, seconds):
    deadline = time.monotonic() + seconds
    while daemons_of(environment):
        if time.monotonic() > deadline:
            return False
    return True


def test_starts_with_the_first_client_and_ends_after_the_last(home):
    assert daemons_of(home) == []
    first = Client(home)
    assert first.status() == 0
    second = Client(home)
    assert second.status() == 0
    assert len(daemons_of(home)) == 1, "the second client uses the first one's daemon"
    assert first.end() == 0
    assert len(daemons_of(home)) == 1
    assert second.end() == 0
    assert ends_within(home, 60)


def test_two_clients_that_race_get_one_daemon(home):
    clients = [Client(home) for _ in range(4)]
    assert [client.status() for client in clients] == [0, 0, 0, 0]
    assert len(daemons_of(home)) == 1
    assert [client.end() for client in clients] == [0, 0, 0, 0]
    assert ends_within(home, 60)


def test_a_crashed_private_daemon_is_replaced_for_the_next_client(home):
    first = Client(home)
    assert first.status() == 0
    os.kill(daemons_of(home)[0], 9)
    first.process.kill()
    first.process.communicate()
    second = Client(home)
    assert second.status() == 0
    assert second.end() == 0
    assert ends_within(home, 60)


def test_autostart_can_be_forbidden_and_a_wrong_daemon_is_named(home, tmp_path):
    forbidden = Client({**home, "HIXLD_NO_AUTOSTART": "1"})
    assert forbidden.status() != 0
    forbidden.end()
    wrong = subprocess.run([PYTHON, "-c", PROGRAM], env={**home, "HIXLD_DAEMON": "/nonexistent/hixld"},
                           input="\n", capture_output=True, text=True, timeout=60, check=False)
    assert json.loads(wrong.stdout) != 0
    assert "/nonexistent/hixld" in wrong.stderr
    assert daemons_of(home) == []


def test_a_client_waits_for_a_daemon_that_starts_beside_it(home, installation, tmp_path):
    socket = tmp_path / "other.sock"
    environment = {**home, "HIXLD_SOCKET": str(socket)}
    log = Path(f"{socket}.log")
    with open(f"{socket}.lock", "w", encoding="ascii") as starting:
        fcntl.flock(starting, fcntl.LOCK_EX)
        client = Client(environment)
        eventually(lambda: log.exists() and "already running" in log.read_text())
    daemon = subprocess.Popen([installation.hixld, "--private", "--socket", socket], env=environment)
    try:
        assert client.status() == 0
        assert client.end() == 0
    finally:
        daemon.terminate()
        daemon.wait(30)


def test_a_file_where_the_socket_should_be_is_refused_and_kept(home, tmp_path):
    directory = tmp_path / "own"
    directory.mkdir()
    file = directory / "file"
    file.write_text("precious")
    client = subprocess.run([PYTHON, "-c", PROGRAM], env={**home, "HIXLD_SOCKET": str(file)}, input="\n",
                            capture_output=True, text=True, timeout=60, check=False)
    assert json.loads(client.stdout) != 0
    assert f"{file} exists and is no socket" in client.stderr
    assert file.read_text() == "precious"
    assert list(directory.iterdir()) == [file]
