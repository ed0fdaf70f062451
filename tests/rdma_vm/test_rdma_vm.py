"""The RDMA transport on a real verbs stack, in the test machine."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

import vm  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
PARTS = ["one_device", "two_devices", "four_devices", "cancel", "break", "port_down", "loss",
         "delay", "memlock", "no_such_device", "inactive_port", "no_address"]
SPEEDS = ["speed_1m", "speed_64k", "speed_4k"]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def exercise():
    """The program that drives the transport, one file without libraries of ours."""
    reason = vm.why_not_possible()
    if reason:
        pytest.skip(reason)
    target = "tests/transports/rdma/exercise"
    subprocess.run(["bazel", "build", "--config=opt", "//tests/transports/rdma:exercise"], cwd=ROOT,
                   check=True, timeout=900)
    # Not through the link in the tree: another build may turn it meanwhile.
    binaries = subprocess.run(["bazel", "info", "--config=opt", "bazel-bin"], cwd=ROOT, check=True,
                              capture_output=True, text=True, timeout=60).stdout.strip()
    return os.path.realpath(f"{binaries}/{target}")


@pytest.fixture(scope="module")
def parts(exercise):
    """One machine runs them all; what each said, and how it ended."""
    command = vm.Command(["bash", str(Path(__file__).with_name("suite.sh")), exercise])
    result = vm.run(command, timeout_s=900)[0]
    assert result.code == 0, f"machine ended with {result.code}\n{result.output}\n{result.console}"
    found = {}
    for name, said, code, seconds in re.findall(
            r"^-- (\w+)\n(.*?)^== \1 (\d+) (\d+)$", result.output, re.MULTILINE | re.DOTALL):
        print(f"{name}: {seconds} s")
        found[name] = (int(code), said)
    return found


@pytest.mark.parametrize("name", PARTS)
def test_part(parts, name):
    code, said = parts[name]
    assert code == 0, said


@pytest.mark.parametrize("name", SPEEDS)
def test_speed_beside_perftest(parts, name):
    """Both did work; the numbers are shown, not judged: the machine shares its processors."""
    code, said = parts[name]
    print(said)
    assert code == 0, said
    assert len(re.findall(r"MiB/s [0-9.]+", said)) == 4, said


def test_two_machines_reach_each_other(exercise):
    """The wire between two machines carries RDMA."""
    script = """
      if [ "$HIXLD_VM_NODE" = 0 ]; then
        ib_write_bw -d rxe0 -s 65536 -n 200 -F
      else
        for try in $(seq 200); do
          ib_write_bw -d rxe0 -s 65536 -n 200 -F 10.77.0.1 && exit 0
          sleep 0.3
        done
        exit 1
      fi"""
    results = vm.run(vm.Command(["bash", "-c", script]), timeout_s=400, nodes=2)
    for result in results:
        assert result.code == 0, result.output + result.console


def test_exit_code_output_and_shares_come_back(tmp_path):
    reason = vm.why_not_possible()
    if reason:
        pytest.skip(reason)
    script = f"echo said; echo kept >{tmp_path}/kept; exit 7"
    result = vm.run(vm.Command(["bash", "-c", script], shares=[tmp_path]), timeout_s=300)[0]
    assert result.code == 7, result.console
    assert result.output == "said\n"
    assert (tmp_path / "kept").read_text() == "kept\n"


def test_a_machine_that_does_not_end_is_ended():
    reason = vm.why_not_possible()
    if reason:
        pytest.skip(reason)
    result = vm.run(vm.Command(["sleep", "10000"]), timeout_s=2)[0]
    assert result.code == vm.TIMED_OUT
