"""The admin command against a daemon at work: tables for people, versioned JSON for programs."""

import json
import subprocess

import pytest
from harness.peer import SUCCESS

MIB = 1 << 20
COMMANDS = ["status", "sessions", "engines", "regions", "links", "transfers", "devices", "pools"]
NO_DAEMON, WRONG_USAGE = 3, 2


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
