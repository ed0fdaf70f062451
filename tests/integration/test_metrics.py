"""The metrics endpoint: off by default, truthful when on, and one clear line when it cannot be had."""

import re
import socket
import subprocess
import sys

import pytest
from harness.peer import SUCCESS, free_port

MIB = 1 << 20
SAMPLE = re.compile(r'^([a-z_:]+)(?:\{(.*)\})? (\S+)$', re.MULTILINE)
LABEL = re.compile(r'(\w+)="([^"]*)"')


READ_METRICS = """
import sys, urllib.request
print(urllib.request.urlopen(f"http://127.0.0.1:{sys.argv[1]}/metrics", timeout=20).read().decode())
"""


def scrape(node, port):
    """{(name, frozenset of labels): value} of one reading, on the daemon's host."""
    text = subprocess.run(node.wrap([sys.executable, "-c", READ_METRICS, port]), check=True,
                          capture_output=True, text=True, timeout=60).stdout
    return {(name, frozenset(LABEL.findall(labels or ""))): float(value)
            for name, labels, value in SAMPLE.findall(text)}


def total(metrics, name, **labels):
    """Sum of all samples of `name` that have these labels."""
    wanted = set(labels.items())
    return sum(value for (sample, have), value in metrics.items()
               if sample == name and wanted <= have)


def test_transfers_and_what_the_node_holds_are_counted(daemon, peer):
    port = free_port()
    node = daemon(config={"telemetry": {"metrics_address": f"127.0.0.1:{port}"}})
    before = scrape(node, port)
    assert total(before, "hixld_build_info") == 1
    assert total(before, "hixld_sessions") == 0
    assert total(before, "hixld_transfers_total") == 0

    here, there = peer(node), peer(node)
    local, remote = here.memory(8 * MIB), there.memory(8 * MIB)
    assert here.connect(there.engine) == SUCCESS
    assert here.transfer(there.engine, "READ", [(local.address, remote.address, 8 * MIB)]) == SUCCESS

    after = scrape(node, port)
    assert total(after, "hixld_sessions") == 2
    assert total(after, "hixld_engines") == 2
    assert total(after, "hixld_registered_bytes") == 16 * MIB
    assert total(after, "hixld_transfers_total", op="read", result="completed") == 1
    assert total(after, "hixld_transfers_total", result="failed") == 0
    assert total(after, "hixld_transfer_bytes_total", op="read", transport="local") == 8 * MIB
    assert total(after, "hixld_transfer_duration_seconds_count", op="read") == 1
    assert total(after, "hixld_pool_capacity_bytes", pool="host") > 0
    assert total(after, "process_resident_memory_bytes") > 0


def test_lanes_between_nodes_are_counted(hosts, daemon, cluster_key, peer):
    port = free_port()
    pair = hosts(2)
    here_node = daemon(host=pair[0], cluster_key=cluster_key,
                       config={"telemetry": {"metrics_address": f"127.0.0.1:{port}"}})
    there_node = daemon(host=pair[1], cluster_key=cluster_key)
    here, there = peer(here_node), peer(there_node)
    local, remote = here.memory(8 * MIB), there.memory(8 * MIB)
    assert here.connect(there.engine) == SUCCESS
    assert here.transfer(there.engine, "READ", [(local.address, remote.address, 8 * MIB)]) == SUCCESS
    metrics = scrape(here_node, port)
    assert total(metrics, "hixld_lane_received_bytes_total") >= 8 * MIB
    assert total(metrics, "hixld_lane_up") >= 1
    assert total(metrics, "hixld_links") == 1
    assert total(metrics, "hixld_transfer_bytes_total", transport="tcp") == 8 * MIB


def test_nothing_listens_by_default(daemon):
    node = daemon()
    assert "metrics served" not in node.log()


@pytest.mark.parametrize("address", ["taken", "192.0.2.1:9400", "localhost:9400", "127.0.0.1:99999"])
def test_an_address_that_cannot_be_had_stops_the_start_with_one_line(daemon, address):
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        if address == "taken":
            address = f"127.0.0.1:{holder.getsockname()[1]}"
        node = daemon(started=False, config={"telemetry": {"metrics_address": address}})
        node.spawn()
        assert node.process.wait(60) == 2
    node.may_be_gone = True
    lines = node.log().strip().splitlines()
    assert len(lines) == 1, lines
    for word in (str(node.config_path), "telemetry.metrics_address", address):
        assert word in lines[0]
