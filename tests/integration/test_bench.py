"""hixl-bench against real daemons: it checks every byte, and it ends well when its peer does not."""

import json
import re
import signal
import subprocess
import xml.etree.ElementTree as ElementTree

import pytest

SMALL = ["--check", "--iterations", "20", "--rounds", "2", "--warmup", "1ms"]
TIMEOUT_S = 240


@pytest.fixture
def bench(installation):
    """Runs hixl-bench on a daemon and returns the finished process."""

    def run(daemon, *arguments):
        command = [installation.prefix / "bin" / "hixl-bench", *arguments]
        return subprocess.run(daemon.wrap(command), env=daemon.environment(), capture_output=True,
                              text=True, timeout=TIMEOUT_S, check=False)

    return run


@pytest.fixture
def start_bench(installation):
    """Starts hixl-bench on a daemon; what still runs at the end is killed."""
    started = []

    def start(daemon, *arguments):
        command = [installation.prefix / "bin" / "hixl-bench", *arguments]
        # The library would start another daemon in place of one that died.
        environment = {**daemon.environment(), "HIXLD_NO_AUTOSTART": "1"}
        started.append(subprocess.Popen(daemon.wrap(command), env=environment, text=True,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE))
        return started[-1]

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def target_address(process):
    """The address in the command that a target prints for its initiator."""
    assert process.stdout.readline().startswith("engine ")
    return re.search(r"--target (\S+)", process.stdout.readline())[1]


def good(result):
    assert result.returncode == 0, f"{result.stdout}\n{result.stderr}"
    return result


@pytest.mark.parametrize("memory", ["pool", "memfd", "plain"])
def test_every_byte_arrives_between_two_processes(daemon, bench, tmp_path, memory):
    lines = tmp_path / "out.jsonl"
    good(bench(daemon(), "--self", *SMALL, "--memory", memory, "--block", "100,4K,64K",
               "--batch", "1,9", "--threads", "1,2", "--op", "read,write,mix",
               "--layout", "contiguous,scattered,shuffled", "--jsonl", lines))
    results = [json.loads(line) for line in lines.read_text().splitlines()]
    assert len(results) == 3 * 2 * 2 * 3 * 3
    assert all(result["checked"] and result["gb_per_s"] > 0 for result in results)
    assert all(result["transfers"] == 40 * result["threads"] for result in results)


def test_every_byte_arrives_between_kinds_of_memory(daemon, bench):
    good(bench(daemon(), "--self", *SMALL, "--memory", "pool,memfd,plain",
               "--target-memory", "pool,memfd,plain", "--block", "64K", "--batch", "3",
               "--layout", "scattered"))


def test_device_memory(daemon, bench):
    result = bench(daemon(), "--self", *[part for part in SMALL if part != "--check"],
                   "--memory", "device", "--target-memory", "device,pool", "--block", "64K")
    good(result)


@pytest.mark.parametrize("options", [["--batch-as", "arrays"], ["--batch-as", "blocks"], ["--async", "--depth", "1,16"],
                                     ["--async", "--batch-as", "arrays", "--threads", "2"],
                                     ["--async", "--batch-as", "blocks", "--layout", "scattered"]], ids=" ".join)
def test_every_byte_arrives_in_other_ways(daemon, bench, options):
    good(bench(daemon(), "--self", *SMALL, "--block", "4K", "--batch", "1,32", "--op", "mix", *options))


def test_two_engines_in_one_process(daemon, bench):
    good(bench(daemon(), "--self", "--one-process", *SMALL, "--block", "4K,1M", "--op", "mix"))


def test_every_byte_arrives_between_two_daemons_on_loopback(daemon, bench):
    here, there = daemon(), daemon()
    good(bench(here, "--self", "--target-socket", there.socket, *SMALL, "--block", "4K,3M",
               "--batch", "1,5", "--op", "mix", "--layout", "scattered"))


def test_every_byte_arrives_between_two_nodes(two_nodes, bench, start_bench):
    here, there = two_nodes
    target = start_bench(there, "target", "--engine", there.host.address)
    good(bench(here, "initiator", "--target", target_address(target), *SMALL,
               "--block", "4K,64K,3M", "--batch", "7", "--op", "read,write,mix",
               "--baseline", "socket"))
    assert target.wait(TIMEOUT_S) == 0


def test_the_kv_cache_of_a_model(daemon, bench, tmp_path):
    lines = tmp_path / "out.jsonl"
    good(bench(daemon(), "--self", "--check", "--iterations", "1", "--rounds", "1", "--model",
               "glm-4-9b", "--tokens", "256", "--op", "read", "--jsonl", lines))
    result = json.loads(lines.read_text())
    assert (result["model"], result["block_bytes"], result["batch"]) == ("glm-4-9b", 8192, 80 * 16)


def test_baselines_and_plot(daemon, bench, tmp_path):
    lines, plot = tmp_path / "out.jsonl", tmp_path / "out.svg"
    good(bench(daemon(), "--self", "--block", "4K,64K", "--batch", "4", "--rounds", "3", "--duration",
               "10ms", "--warmup", "1ms", "--baseline", "memcpy,socket,grpc,wake", "--jsonl", lines,
               "--plot", plot))
    for line in lines.read_text().splitlines():
        result = json.loads(line)
        for baseline in ["memcpy", "socket", "socket_zero_copy", "grpc", "wake"]:
            assert len(result[baseline]["rounds"]) == 3 and result[baseline]["ratio"] > 0
    assert ElementTree.parse(plot).getroot().tag.endswith("svg")


def test_files_that_cannot_be_written_are_told_before_measuring(daemon, bench, tmp_path):
    for option in ["--jsonl", "--plot"]:
        result = bench(daemon(), "--self", option, tmp_path / "missing" / "out", "--duration", "1min")
        assert result.returncode != 0
        assert option in result.stderr and "missing/out" in result.stderr
        assert "GB/s" not in result.stdout


def test_wrong_usage_ends_with_2(daemon, bench):
    result = bench(daemon(), "--self", "--block", "0")
    assert result.returncode == 2
    assert "--block" in result.stderr and "allowed" in result.stderr


def test_the_initiator_ends_when_its_target_is_killed(daemon, start_bench):
    node = daemon()
    target = start_bench(node, "target")
    initiator = start_bench(node, "initiator", "--target", target_address(target), "--duration",
                            "1min", "--rounds", "1", "--block", "4K", "--op", "read")
    assert initiator.stdout.readline().startswith("op ")  # it has begun
    target.send_signal(signal.SIGKILL)
    _, errors = initiator.communicate(timeout=TIMEOUT_S)
    assert initiator.returncode == 1
    assert "target has gone" in errors


def test_the_target_ends_when_its_initiator_is_killed(daemon, start_bench):
    node = daemon()
    target = start_bench(node, "target")
    initiator = start_bench(node, "initiator", "--target", target_address(target), "--duration",
                            "1min", "--rounds", "1", "--block", "4K", "--op", "write")
    assert initiator.stdout.readline().startswith("op ")
    initiator.send_signal(signal.SIGKILL)
    _, errors = target.communicate(timeout=TIMEOUT_S)
    assert target.returncode == 1
    assert "initiator has gone" in errors


def test_a_serving_target_takes_the_next_initiator(daemon, bench, start_bench):
    node = daemon()
    target = start_bench(node, "target", "--serve")
    address = target_address(target)
    for _ in range(2):
        good(bench(node, "initiator", "--target", address, *SMALL, "--block", "4K"))
    assert target.poll() is None


def test_the_bench_fails_when_the_daemon_dies(daemon, start_bench):
    node = daemon()
    bench = start_bench(node, "--self", "--duration", "1min", "--rounds", "1", "--block", "1M")
    assert bench.stdout.readline().startswith("op ")
    node.kill()
    _, errors = bench.communicate(timeout=TIMEOUT_S)
    assert bench.returncode == 1
    assert "hixl-bench:" in errors
