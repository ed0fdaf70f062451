"""Two daemons at the two ends of a wire, in the test machine."""

import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

import vm  # noqa: E402

PARTS = ["every_byte", "doctor", "no_processor_time", "traffic_classes", "port_down", "peer_killed",
         "fall_back", "no_fall_back", "without_a_device", "too_little_memlock"]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


def results_of(output):
    """What each part said, and how it ended."""
    found = {}
    for name, said, code, seconds in re.findall(
            r"^-- (\w+)\n(.*?)^== \1 (\d+) (\d+)$", output, re.MULTILINE | re.DOTALL):
        print(f"{name}: {seconds} s")
        found[name] = (int(code), said)
    return found


def run_script(name, installation, **options):
    """Runs one of the scripts beside this file, on this installation."""
    script = Path(__file__).with_name(name)
    return vm.run(vm.Command(["bash", str(script), str(installation.prefix)],
                             shares=[installation.prefix, script.parent]), **options)


@pytest.fixture(scope="module")
def parts(possible, installation):
    """One machine runs them all."""
    result = run_script("daemons.sh", installation, timeout_s=900)[0]
    found = results_of(result.output)
    assert found, f"machine ended with {result.code}\n{result.output}\n{result.console}"
    return found, result


@pytest.mark.parametrize("name", PARTS)
def test_daemons(parts, name):
    found, result = parts
    assert name in found, f"machine ended with {result.code}\n{result.output[-5000:]}"
    code, said = found[name]
    print(said)
    assert code == 0, said


def test_two_machines(possible, installation):
    server, client = run_script("two_nodes.sh", installation, timeout_s=600, nodes=2)
    assert client.code == 0, client.output + client.console + server.output
    assert server.code == 0, server.output + server.console
