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
PARTS = ["one_device", "four_devices", "pieces", "cancel", "break", "port_down", "loss", "delay",
         "memlock", "no_such_device", "inactive_port", "no_address"]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def exercise(possible):
    """The program that drives the transport, one file without libraries of ours."""
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
    script = Path(__file__).with_name("suite.sh")
    # Either may lie where the machine has directories of its own.
    command = vm.Command(["bash", str(script), exercise],
                         shares=[script.parent, Path(exercise).parent])
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
    assert name in parts, parts
    code, said = parts[name]
    assert code == 0, said
