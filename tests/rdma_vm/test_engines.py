"""Engines on two nodes that have nothing but RDMA between them, in the test machine: the tests that
other transports pass too."""

import os
import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

import vm  # noqa: E402

TESTS = Path(__file__).resolve().parents[1]
# All take eleven minutes.
FILES = ["integration/test_transfers.py"]
if os.environ.get("HIXLD_TEST_FULL"):
    FILES += [f"integration/test_{name}.py" for name in ("bad_input", "async", "notify", "links")] + ["fault"]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]


@pytest.mark.parametrize("name", FILES)
def test_engines(possible, installation, name):
    script = Path(__file__).with_name("engines.sh")
    command = vm.Command(["bash", str(script), str(installation.prefix), str(TESTS), name],
                         shares=[installation.prefix, TESTS])
    result = vm.run(command, timeout_s=1200)[0]
    ends = re.findall(rf"^{re.escape(name)}[:/].* (PASSED|FAILED|ERROR|SKIPPED)\b", result.output, re.MULTILINE)
    assert set(ends) == {"PASSED"}, f"machine ended with {result.code}\n{result.output}\n{result.console}"
