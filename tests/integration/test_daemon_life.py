"""How a daemon starts, refuses to start, idles and ends."""

import os
import signal
import stat
import subprocess
import time

import pytest
from harness.peer import SUCCESS

MIB = 1 << 20


def test_starts_serves_and_stops_without_leaving_files(daemon):
    node = daemon()
    assert node.serving()
    assert node.stop() == 0
    assert not node.socket.exists() and not node.fd_socket.exists()


@pytest.mark.parametrize("mask", [0o000, 0o077])
def test_socket_modes_do_not_depend_on_the_umask(daemon, mask):
    before = os.umask(mask)
    try:
        node = daemon(config={"socket": {"mode": "0600"}})
    finally:
        os.umask(before)
    for path in (node.socket, node.fd_socket):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_second_daemon_on_the_socket_names_the_first_and_leaves_it_alone(daemon, installation):
    node = daemon()
    second = subprocess.run([installation.hixld, "--config", node.config_path, "--socket", node.socket],
                            capture_output=True, text=True, timeout=60, check=False)
    assert second.returncode != 0
    assert f"already running, pid {node.pid}" in second.stderr
    node.assert_alive()


def test_starts_again_after_kill_9_on_the_same_socket(daemon):
    node = daemon()
    for _ in range(3):
        node.kill()
        node.start()
    node.may_be_gone = False
    assert node.serving()


def test_what_the_configuration_names_and_the_host_lacks_is_told(daemon, installation):
    node = daemon(started=False, config={"tcp": {"interfaces": ["lo", "nosuch0"],
                                                 "congestion_control": "nosuch"},
                                         "node": {"data_address": "192.0.2.77"},
                                         "security": {"allow_unauthenticated_network": True}})
    check = [installation.hixld, "--config", node.config_path, "--check-config"]
    checked = subprocess.run(check, capture_output=True, text=True, timeout=60, check=False)
    assert checked.returncode == 0
    for words in ('no interface "nosuch0" (it has: ', "192.0.2.77 is no address of this host",
                  'tcp.congestion_control: congestion control "nosuch" is not there (this host has: '):
        assert words in checked.stderr
    assert '"lo"' not in checked.stderr
    node.start()
    assert "nosuch0" in node.log() and "192.0.2.77" in node.log()
    homeless = subprocess.run([*check, "--socket", "/nonexistent/s.sock"], capture_output=True, text=True,
                              timeout=60, check=False)
    assert "socket.path: there is no directory /nonexistent" in homeless.stderr
    grouped = subprocess.run([*check, "--set", "socket.group=nosuchgroup"], capture_output=True, text=True,
                             timeout=60, check=False)
    assert grouped.returncode == 2 and '"nosuchgroup" is no group' in grouped.stderr


@pytest.mark.parametrize("flag", ["--config", "--socket", "--cluster-key-file"])
def test_an_empty_value_is_no_default(installation, flag):
    result = subprocess.run([installation.hixld, flag, "", "--check-config"], capture_output=True, text=True,
                            timeout=60, check=False)
    assert result.returncode == 2
    assert flag in result.stderr and "empty" in result.stderr


def test_a_wrong_log_level_is_blamed_on_its_own_flag(installation):
    result = subprocess.run([installation.hixld, "--log-level", "loud", "--check-config"],
                            capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 2
    assert "--log-level" in result.stderr and "warn" in result.stderr and "--set" not in result.stderr


@pytest.mark.parametrize("config, words", [
    ({"tcp": {"lane": 2}}, ["lane", "lanes"]),
    ({"tcp": {"lanes": 0}}, ["lanes", "1..16"]),
    ({"pools": {"host": {"arena_bytes": "many"}}}, ["arena_bytes"]),
    ({"surprise": 1}, ["surprise"]),
])
def test_a_bad_configuration_stops_the_start_with_one_clear_line(daemon, config, words):
    node = daemon(started=False, config=config)
    node.spawn()
    assert node.process.wait(60) == 2
    node.may_be_gone = True
    said = node.log()
    assert str(node.config_path) in said
    for word in words:
        assert word in said


@pytest.mark.parametrize("suffix", ["", ".fd", ".lock"])
def test_somebody_elses_file_is_named_and_nothing_is_left_beside_it(daemon, suffix):
    node = daemon(started=False)
    file = node.socket.with_name(node.socket.name + suffix)
    file.write_text("precious")
    before = set(node.directory.iterdir()) | {node.log_path}
    node.spawn()
    assert node.process.wait(60) == 2
    node.may_be_gone = True
    assert f"{file} exists and is no" in node.log()
    assert file.read_text() == "precious"
    assert set(node.directory.iterdir()) == before


def test_too_few_descriptors_are_named(daemon, installation):
    node = daemon()
    in_use = len(os.listdir(f"/proc/{node.pid}/fd"))
    for limit in (10, in_use):
        result = subprocess.run(["prlimit", f"--nofile={limit}:{limit}", installation.hixld, "--socket",
                                 node.directory / "other.sock"],
                                capture_output=True, text=True, timeout=60, check=False)
        assert result.returncode == 1
        assert f"RLIMIT_NOFILE (ulimit -n) is {limit}" in result.stderr


def test_unknown_flags_are_refused(daemon):
    node = daemon(started=False, arguments=["--no-such-flag"])
    node.spawn()
    assert node.process.wait(60) != 0
    node.may_be_gone = True
    assert "no-such-flag" in node.log()


def test_an_idle_daemon_is_small_and_uses_no_cpu(daemon, installation):
    if "HIXLD_TEST_BIN_DIR" in os.environ:
        pytest.skip("a sanitizer build is neither small nor idle")
    node = daemon()
    clock = os.sysconf("SC_CLK_TCK")

    def cpu_seconds():
        with open(f"/proc/{node.pid}/stat", encoding="ascii") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / clock

    begin = cpu_seconds()
    time.sleep(3)  # what is measured is exactly that nothing happens in this time
    assert cpu_seconds() - begin <= 0.03
    with open(f"/proc/{node.pid}/status", encoding="ascii") as file:
        status = dict(line.split(":", 1) for line in file)
    resident = int(status["VmRSS"].split()[0]) * 1024
    assert resident < 40 * MIB, f"{resident / MIB:.1f} MiB"


def test_clients_of_a_stopped_daemon_fail_at_once(daemon, peer):
    node = daemon()
    here, there = peer(node), peer(node)
    local, remote = here.memory(MIB), there.memory(MIB)
    assert here.connect(there.engine) == SUCCESS
    assert node.stop() == 0
    piece = (local.address, remote.address, MIB)
    start = time.monotonic()
    assert here.transfer(there.engine, "READ", [piece], timeout_ms=30_000) != SUCCESS
    assert time.monotonic() - start < 20


def test_clients_go_on_with_the_daemon_that_takes_over(daemon, peer):
    node = daemon()
    here, there = peer(node), peer(node)
    local, remote = here.memory(MIB), there.memory(MIB, "plain", seed=1)
    assert here.connect(there.engine) == SUCCESS
    piece = (local.address, remote.address, MIB)
    assert node.stop() == 0
    node.start()
    node.may_be_gone = False
    # The owner makes no call: its library notices the new daemon by itself or at its next call.
    assert there.run("engine.get_notifies()[0]") == SUCCESS
    if here.transfer(there.engine, "READ", [piece]) != SUCCESS:
        here.run("engine.disconnect(remote)", remote=there.engine)
        assert here.connect(there.engine) == SUCCESS
        assert here.transfer(there.engine, "READ", [piece]) == SUCCESS
    assert local.crc() == remote.crc()


def test_sigterm_during_transfers_ends_the_daemon(daemon, peer):
    node = daemon()
    here, there = peer(node), peer(node)
    local, remote = here.memory(64 * MIB), there.memory(64 * MIB)
    assert here.connect(there.engine) == SUCCESS
    piece = (local.address, remote.address, 64 * MIB)
    here.worker.start("[engine.transfer_sync(remote, hixl.TransferOp.READ, descriptors(pieces), 5000)"
                      " for _ in range(50)][-1] != 0", remote=there.engine, pieces=[piece])
    node.process.send_signal(signal.SIGTERM)
    node.may_be_gone = True
    assert node.process.wait(30) == 0
    here.worker.result()
