"""The demo's two processes, as deploy/quickstart.sh runs them."""

import re
import subprocess

import pytest
from harness.installation import ROOT
from harness.worker import PYTHON

pytest.importorskip("numpy")

PROMPT = "She walked to the window, and looked out upon the lawn, where nobody was to be seen; and then"


@pytest.fixture(params=["one daemon", "two nodes"])
def nodes(request):
    if request.param == "one daemon":
        node = request.getfixturevalue("daemon")()
        return [node, node], "127.0.0.1", "127.0.0.1"
    pair = request.getfixturevalue("two_nodes")
    return pair, pair[0].host.address, pair[1].host.address


def start(node, script, *arguments):
    command = [PYTHON, ROOT / "deploy/demo" / script, *arguments]
    return subprocess.Popen(node.wrap(command), env=node.environment(), text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def finish(process):
    try:
        return process.communicate(timeout=120)[0]
    finally:
        process.kill()


def test_prefill_and_decode_give_the_tokens_of_a_single_process(nodes):
    (first, second), prefill_address, decode_address = nodes
    prefill = start(first, "prefill.py", "--engine", f"{prefill_address}:26000", "--prompt", PROMPT,
                    "--bench-mib", "16")
    decode = start(second, "decode.py", "--engine", f"{decode_address}:26001", "--prefill-host",
                   prefill_address, "--tokens", "60")
    said, prefill_said = finish(decode), finish(prefill)
    assert decode.returncode == 0 and prefill.returncode == 0, said + prefill_said
    assert "tokens equal those of a single-process run: yes" in said
    text = re.search(r"^text:  (.*)\|(.*)", said, re.MULTILINE | re.DOTALL)
    assert text.group(1) == PROMPT
    moved = int(re.search(r"^moved: (\d+) bytes", said, re.MULTILINE).group(1))
    blocks = -(-len(PROMPT) // 16)
    assert moved == blocks * 16 * 5 * 2 * 2 * 32 * 2  # tokens, layers, K and V, heads, head size, float16
    for line in ("one block:", "16 KiB scattered:", "memcpy", "iperf3"):
        assert re.search(rf"{line}.* [0-9.]+ GB/s", said), said


def test_a_malformed_address_is_a_clear_error(daemon):
    node = daemon()
    process = start(node, "prefill.py", "--engine", "not-an-address:1", "--prompt", "x")
    said = finish(process)
    assert process.returncode != 0
    assert "initialize not-an-address:1: PARAM_INVALID" in said
