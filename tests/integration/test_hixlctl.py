"""The admin command against a daemon at work: tables for people, versioned JSON for programs."""

import json
import os
import signal
import subprocess
import time

import pytest
from harness.peer import SUCCESS
from harness.wait import eventually

MIB = 1 << 20
COMMANDS = ["status", "sessions", "engines", "regions", "links", "transfers", "devices", "pools"]
FAILED, WRONG_USAGE, NO_DAEMON, NO_ACCESS = 1, 2, 3, 4


@pytest.fixture
def at_work(two_nodes, peer):
    """Two nodes with one engine each and 8 MiB read from one to the other."""
    here, there = peer(two_nodes[0]), peer(two_nodes[1])
    local, remote = here.memory(8 * MIB), there.memory(8 * MIB)
    assert here.connect(there.engine) == SUCCESS
    assert here.transfer(there.engine, "READ", [(local.address, remote.address, 8 * MIB)]) == SUCCESS
    return here, there


def shown(node, command):
    said = node.ctl(command, "--json")
    assert said.returncode == 0, said.stderr
    return json.loads(said.stdout)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_a_table_and_versioned_json(daemon, command):
    node = daemon()
    table = node.ctl(command)
    assert table.returncode == 0 and table.stdout.strip(), table.stderr
    document = shown(node, command)
    assert any("version" in key or "schema" in key for key in document), document


def test_shows_who_is_there_and_what_moved(at_work):
    here, there = at_work
    node = here.daemon
    pid = here.worker.process.pid
    assert pid in [session["pid"] for session in shown(node, "sessions")["sessions"]]
    engines = {engine["engine_id"]: engine for engine in shown(node, "engines")["engines"]}
    channel = engines[here.engine]["channels"][0]
    assert channel["remote_engine"] == there.engine and channel["bytes"] == 8 * MIB
    assert [r["length"] for r in shown(node, "regions")["regions"]] == [8 * MIB]
    link = shown(node, "links")["links"][0]
    assert link["state"] == "up" and there.daemon.host.address in link["peer_address"]
    assert sum(lane["bytes_received"] for lane in link["lanes"]) >= 8 * MIB
    for command, words in [("sessions", [str(pid)]), ("engines", [here.engine, there.engine]),
                           ("links", [there.daemon.host.address])]:
        table = node.ctl(command).stdout
        for word in words:
            assert word in table, f"{command}: {word}"


def test_health_and_version(daemon, installation):
    node = daemon()
    assert node.ctl("health").returncode == 0
    assert shown(node, "status")["status"]["pid"] == node.pid
    assert node.stop() == 0
    for command in ("health", "status"):
        gone = node.ctl(command)
        assert gone.returncode == NO_DAEMON
        assert str(node.socket) in gone.stderr
    offline = subprocess.run([installation.hixlctl, "version"], capture_output=True, text=True, check=False)
    assert offline.returncode == 0 and "hixlctl" in offline.stdout


def test_wrong_usage_is_told_from_failure(daemon):
    node = daemon()
    for arguments in (["no-such-command"], ["status", "--no-such-flag"], ["status", "--timeout", "-1"]):
        said = node.ctl(*arguments)
        assert said.returncode == WRONG_USAGE, said.stderr
        assert said.stderr.strip()


def test_a_transfer_under_way_shows_its_progress_and_deadline(hosts, daemon, cluster_key, peer):
    # The peer is stopped for as long as the commands take, and must not count as dead meanwhile.
    patient = {"tcp": {"keepalive_timeout": "2min"}}
    here, there = (peer(daemon(host=host, cluster_key=cluster_key, config=patient)) for host in hosts(2))
    local, remote = here.memory(32 * MIB), there.memory(32 * MIB)
    assert here.connect(there.engine) == SUCCESS
    there.daemon.process.send_signal(signal.SIGSTOP)
    try:
        here.start_transfer(there.engine, "READ", [(local.address, remote.address, 32 * MIB)],
                            timeout_ms=50_000)
        active = eventually(lambda: shown(here.daemon, "transfers")["active"], seconds=20)
        [transfer] = active
        table = here.daemon.ctl("transfers").stdout
    finally:
        there.daemon.process.send_signal(signal.SIGCONT)
    assert here.worker.result() == SUCCESS
    assert transfer["local_engine"] == here.engine and transfer["remote_engine"] == there.engine
    assert (transfer["op"], transfer["state"], transfer["transport"]) == ("read", "waiting", "tcp")
    assert transfer["bytes"] == 32 * MIB and transfer["bytes_done"] < 32 * MIB
    assert 0 < transfer["deadline_ms"] <= 50_000
    assert there.engine in table and "waiting" in table
    assert shown(here.daemon, "transfers")["active"] == []


def test_a_failed_transfer_is_remembered_with_its_reason(daemon, peer):
    node = daemon()
    here, there = peer(node), peer(node)
    local = here.memory(MIB)
    register = "engine.register_mem(hixl.MemDesc(4096, 8192), hixl.MemType.MEM_HOST)[0]"
    assert there.run(register) == SUCCESS  # nothing is mapped at that address
    assert here.connect(there.engine) == SUCCESS
    assert here.transfer(there.engine, "READ", [(local.address, 4096, 8192)]) != SUCCESS
    [failure] = shown(node, "transfers")["recent_failures"]
    assert failure["transfer"]["state"] == "failed" and failure["transfer"]["bytes"] == 8192
    assert failure["message"]
    assert failure["message"].splitlines()[0][:20] in node.ctl("transfers").stdout
    assert shown(node, "status")["status"]["transfers_failed"] == 1


def test_regions_of_one_engine_and_of_an_unknown_one(daemon, peer):
    node = daemon()
    here, there = peer(node), peer(node)
    here.memory(MIB), there.memory(2 * MIB)
    said = node.ctl("regions", "--engine", there.engine, "--json")
    [region] = json.loads(said.stdout)["regions"]
    assert region["engine_id"] == there.engine and region["length"] == 2 * MIB
    assert (region["type"], region["access"]) == ("host", "mapped")
    unknown = node.ctl("regions", "--engine", "127.0.0.1:1")
    assert unknown.returncode == FAILED and unknown.stdout == ""
    assert "127.0.0.1:1" in unknown.stderr and here.engine in unknown.stderr


def test_pools_show_what_clients_took(daemon, peer):
    node = daemon()
    here = peer(node)
    here.memory(8 * MIB)
    pools = {pool["name"]: pool for pool in shown(node, "pools")["pools"]}
    assert pools["host"]["used_bytes"] >= 8 * MIB and pools["host"]["buffers"] == 1
    assert shown(node, "sessions")["sessions"][0]["buffer_bytes"] >= 8 * MIB
    here.worker.close()
    eventually(lambda: shown(node, "sessions")["sessions"] == [], seconds=20)
    pools = {pool["name"]: pool for pool in shown(node, "pools")["pools"]}
    assert pools["host"]["used_bytes"] == 0 and pools["host"]["buffers"] == 0


def test_pools_show_device_memory_too(daemon, peer):
    node = daemon()
    peer(node).run("""
buffers['device'] = engine.allocate(3 << 20, mem_type=hixl.MemType.MEM_DEVICE)
True
""")
    pools = {pool["name"]: pool for pool in shown(node, "pools")["pools"]}
    assert pools["sim:0"]["used_bytes"] >= 3 * MIB and pools["sim:0"]["buffers"] == 1


def test_a_daemon_that_hangs_costs_the_timeout(daemon):
    node = daemon()
    node.process.send_signal(signal.SIGSTOP)
    try:
        begin = time.monotonic()
        said = node.ctl("status", "--timeout", "1")
        assert time.monotonic() - begin < 15
    finally:
        node.process.send_signal(signal.SIGCONT)
    assert said.returncode == FAILED and said.stdout == ""
    assert str(node.socket) in said.stderr and "did not answer within 1000 ms" in said.stderr
    eventually(lambda: node.ctl("health").returncode == 0, seconds=20)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")
def test_another_user_is_told_that_he_may_not(daemon, installation):
    node = daemon(config={"socket": {"mode": "0600"}})
    # The tests' directories are closed to others; here the socket alone shall refuse.
    for directory in [node.directory, *node.directory.parents]:
        if directory.owner() == "root" and str(directory).startswith("/tmp/"):
            directory.chmod(0o755)
    said = subprocess.run(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups",
                           installation.hixlctl, "--socket", node.socket, "status"],
                          capture_output=True, text=True, check=False)
    if "cannot execute" in said.stderr or "failed to execute" in said.stderr:
        pytest.skip("another user cannot run the installation's hixlctl")
    assert said.returncode == NO_ACCESS and said.stdout == ""
    assert "mode 0600" in said.stderr and str(node.socket) in said.stderr


def test_watching_sees_a_client_come(daemon, peer, installation):
    node = daemon()
    command = [installation.hixlctl, "--socket", node.socket, "sessions", "--json", "--watch", "0.1"]
    with subprocess.Popen([str(part) for part in command], stdout=subprocess.PIPE, text=True) as watch:
        try:
            assert json.loads(watch.stdout.readline())["sessions"] == []
            here = peer(node)
            deadline = time.monotonic() + 20
            while not (sessions := json.loads(watch.stdout.readline())["sessions"]):
                assert time.monotonic() < deadline
            assert sessions[0]["pid"] == here.worker.process.pid
        finally:
            watch.terminate()


def test_the_doctor_looks_at_the_running_daemon(daemon):
    node = daemon()
    said = node.ctl("doctor", "--json")
    document = json.loads(said.stdout)
    assert document["version"] == 1
    findings = {finding["check"]: finding for finding in document["findings"]}
    assert findings["daemon"]["level"] == "good" and str(node.pid) in findings["daemon"]["found"]
    assert str(node.socket) in findings["socket"]["found"]
    assert f"pid {node.pid}" in findings["memlock"]["found"]
    assert {"kernel", "ptrace scope", "huge pages", "rdma devices"} <= findings.keys()
    problems = [finding for finding in document["findings"] if finding["level"] == "problem"]
    assert said.returncode == (FAILED if problems else 0)
    for finding in document["findings"]:
        assert (finding["advice"] == "") == (finding["level"] == "good" or finding["check"] == "daemon")
    table = node.ctl("doctor").stdout
    assert "CHECK" in table and "ptrace scope" in table


def test_the_doctor_needs_no_daemon(daemon):
    node = daemon()
    node.stop()
    findings = {f["check"]: f for f in json.loads(node.ctl("doctor", "--json").stdout)["findings"]}
    assert findings["daemon"]["level"] == "note"
    assert findings["socket"]["level"] == "note" and "start" in findings["socket"]["advice"]
