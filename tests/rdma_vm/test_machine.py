"""The emulated machine itself: commands, exit codes, shares, time limits, devices and wires."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

import vm  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module", autouse=True)
def possible():
    reason = vm.why_not_possible()
    if reason:
        pytest.skip(reason)


def bash(script, **options):
    return vm.Command(["bash", "-c", script], **options)


def test_exit_code_output_shares_and_devices(tmp_path):
    script = f"""
      echo said; echo kept >{tmp_path}/kept
      for device in rxe0 rxe1 rxe2 rxe3; do
        rdma link show $device/1 | grep -o "$device/1 state ACTIVE"
      done
      exit 7"""
    result = vm.run(bash(script, shares=[tmp_path]), timeout_s=400)[0]
    assert result.code == 7, result.output + result.console
    devices = [f"rxe{number}/1 state ACTIVE" for number in range(4)]
    assert result.output.splitlines() == ["said", *devices]
    assert (tmp_path / "kept").read_text() == "kept\n"


def test_a_machine_that_does_not_end_is_ended():
    result = vm.run(vm.Command(["sleep", "10000"]), timeout_s=2)[0]
    assert result.code == vm.TIMED_OUT


WRITE_BETWEEN = """
  if [ "{server}" = yes ]; then ib_write_bw -d {there} -s 65536 -n 50 -F & server=$!; fi
  code=0
  if [ "{client}" = yes ]; then
    for try in $(seq 100); do
      ib_write_bw -d {here} -s 65536 -n 50 -F {address} && code=0 && break
      code=1; sleep 0.5
    done
  fi
  [ "{server}" = no ] || wait $server || code=2
  exit $code"""


def test_rdma_crosses_the_wire_between_two_devices_of_one_machine():
    script = WRITE_BETWEEN.format(server="yes", client="yes", there="rxe1", here="rxe0",
                                  address="10.77.0.2")
    result = vm.run(bash(script), timeout_s=400)[0]
    assert result.code == 0, result.output + result.console


def test_rdma_crosses_the_wire_between_two_machines():
    server = WRITE_BETWEEN.format(server="yes", client="no", there="rxe0", here="", address="")
    client = WRITE_BETWEEN.format(server="no", client="yes", there="", here="rxe0",
                                  address="10.77.0.1")
    script = f'if [ "$HIXLD_VM_NODE" = 0 ]; then {server}\nelse {client}\nfi'
    for result in vm.run(bash(script), timeout_s=500, nodes=2):
        assert result.code == 0, result.output + result.console
