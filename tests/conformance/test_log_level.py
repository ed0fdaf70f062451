"""Contract 5.2 and 5.4: the log level from HIXL_LOG_LEVEL and at run time, and a line per piece at DEBUG."""

import re

import pytest
from harness.peer import SUCCESS, Peer, engine_id

MIB = 1 << 20
CAPTURE = "import os\nlog = os.open(path, os.O_CREAT | os.O_RDWR | os.O_APPEND)\nos.dup2(log, 2)\n"
LINE = re.compile(r"(READ|WRITE) (\d+) of (\d+): source 0x([0-9a-f]+) of (\S+), target 0x([0-9a-f]+) of (\S+), "
                  r"size (\d+), time (\d+) us, (.*)")


@pytest.fixture
def captured(worker, tmp_path):
    """Factory of clients whose standard error is a file that the test reads."""
    made = []

    def make(node, environment=None):
        path = tmp_path / f"stderr{len(made)}"
        client = Peer(worker(node, environment=environment), engine_id(node), daemon=node)
        client.run(CAPTURE, path=str(path))
        client.lines = lambda: [LINE.search(line).groups() for line in path.read_text().splitlines()
                                if LINE.search(line)]
        client.text = path.read_text
        made.append(client)
        return client

    return make


def test_debug_tells_source_target_size_and_time_of_every_piece(daemon, captured, peer):
    node = daemon()
    here, there = captured(node, {"HIXL_LOG_LEVEL": "DEBUG"}), peer(node)
    local, remote = here.memory(MIB), there.memory(MIB, seed=1)
    assert here.connect(there.engine) == SUCCESS
    pieces = [(local.address, remote.address, 4096), (local.address + 8192, remote.address + 8192, 100)]
    assert here.transfer(there.engine, "READ", pieces) == SUCCESS
    told = here.lines()
    assert [line[:3] for line in told] == [("READ", "1", "2"), ("READ", "2", "2")]
    for line, (mine, theirs, length) in zip(told, pieces):
        assert line[3:8] == (f"{theirs:x}", there.engine, f"{mine:x}", here.engine, str(length))
        assert int(line[8]) >= 0 and line[9] == "SUCCESS"


def test_debug_tells_asynchronous_transfers_when_their_end_is_asked_for(daemon, captured, peer):
    node = daemon()
    here, there = captured(node), peer(node)
    local, remote = here.memory(MIB), there.memory(MIB)
    assert here.connect(there.engine) == SUCCESS
    here.run("hixl.set_log_level('DEBUG')")
    assert here.run("""
status, request = engine.transfer_async(remote, hixl.TransferOp.WRITE, descriptors(pieces))
state = hixl.TransferStatus.WAITING
while state == hixl.TransferStatus.WAITING:
    status, state = engine.get_transfer_status(request)
state.name
""", remote=there.engine, pieces=[(local.address, remote.address, MIB)]) == "COMPLETED"
    (line,) = here.lines()
    assert line[0] == "WRITE" and line[4] == here.engine and line[6] == there.engine and line[9] == "SUCCESS"


def test_a_failed_transfer_tells_why(daemon, captured, peer):
    node = daemon()
    here, there = captured(node, {"HIXL_LOG_LEVEL": "DEBUG"}), peer(node)
    local = here.memory(4096)
    assert here.transfer(there.engine, "READ", [(local.address, 0x1000, 16)]) != SUCCESS
    assert "there is no link" in here.lines()[-1][9]


def test_nothing_is_told_at_the_default_level_and_the_level_may_change_at_run_time(daemon, captured, peer):
    node = daemon()
    here, there = captured(node), peer(node)
    local, remote = here.memory(4096), there.memory(4096)
    piece = (local.address, remote.address, 4096)
    assert here.connect(there.engine) == SUCCESS
    assert here.transfer(there.engine, "READ", [piece]) == SUCCESS
    assert here.text() == ""
    here.run("hixl.set_log_level('DEBUG')")
    assert here.transfer(there.engine, "READ", [piece]) == SUCCESS
    assert len(here.lines()) == 1
    here.run("hixl.set_log_level('ERROR')")
    assert here.transfer(there.engine, "READ", [piece]) == SUCCESS
    assert len(here.lines()) == 1


def test_a_long_batch_is_told_in_bounded_lines(daemon, captured, peer):
    node = daemon()
    here, there = captured(node, {"HIXL_LOG_LEVEL": "DEBUG"}), peer(node)
    local, remote = here.memory(MIB), there.memory(MIB)
    assert here.connect(there.engine) == SUCCESS
    pieces = [(local.address + i * 64, remote.address + i * 64, 64) for i in range(1000)]
    assert here.transfer(there.engine, "READ", pieces) == SUCCESS
    assert len(here.lines()) == 64
    assert "READ 65 to 1000 of 1000" in here.text() and f"size {936 * 64}," in here.text()


@pytest.mark.parametrize("level", ["debug", "TRACE", "", "7"])
def test_an_unknown_level_is_refused_by_name(daemon, captured, level):
    here = captured(daemon())
    outcome = here.run("""
try:
    outcome = hixl.set_log_level(level)
except Exception as problem:
    outcome = str(problem)
[str(outcome), hixl.last_error()]
""", level=level)
    assert any("DEBUG, INFO, WARN, ERROR" in text for text in outcome)


def test_the_daemon_tells_every_transfer_at_level_debug(daemon, peer):
    # What clients copy by themselves the daemon does not see.
    node = daemon(config={"log": {"level": "debug"}, "local": {"direct": "off"}})
    here, there = peer(node), peer(node)
    local, remote = here.memory(MIB, "plain"), there.memory(MIB, "plain")
    assert here.connect(there.engine) == SUCCESS
    assert here.transfer(there.engine, "READ", [(local.address, remote.address, MIB)]) == SUCCESS
    (line,) = [line for line in node.log().splitlines() if "transfer ended" in line]
    for word in ("op=read", f"source={there.engine}", f"target={here.engine}", f"bytes={MIB}", "time_us=",
                 "result=completed"):
        assert word in line, line
