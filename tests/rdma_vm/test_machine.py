"""The emulated machine itself: commands, exit codes, shares, time limits, devices and wires."""

import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

import image  # noqa: E402
import vm  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def bash(script, **options):
    return vm.Command(["bash", "-c", script], **options)


# A server says nothing when it listens: whoever wants to talk to it looks for its port. Packets get
# a second (4 us * 2^18) to be acknowledged, because the machine may wait for the host's processors.
PERFTEST = r"""
  serve() { until "ib_$1_bw" -d $2 -p $3 -u 18 -s 65536 -n 50 -F; do echo again; done; }
  reach() {
    "ib_$1_bw" -d $2 -p $3 -u 18 -s 65536 -n 50 -F $4 2>&1 |
      awk '$1 == 65536 { print "moved", $2; ok = 1 } { all = all $0 "\n" }
           END { if (!ok) print all; exit !ok }'
  }
  listening() { until [ -n "$(ss -Hltn "sport = $1")" ]; do sleep 0.1; done; }
"""


def test_exit_code_output_shares_and_devices(possible, tmp_path):
    script = f"""{PERFTEST}
      echo "$NAME in $PWD"; echo kept >{tmp_path}/kept; touch /usr/own 2>/dev/null || echo read-only
      for device in rxe0 rxe1 rxe2 rxe3; do
        rdma link show $device/1 | grep -o "$device/1 state ACTIVE"
      done
      serve write rxe1 1001 >/dev/null 2>&1 & serve read rxe3 1002 >/dev/null 2>&1 &
      listening 1001 && reach write rxe0 1001 10.77.0.2
      listening 1002 && reach read rxe2 1002 10.78.0.2
      [ $(cat /sys/class/net/v0/statistics/tx_bytes) -gt 3276800 ] && echo over the wire
      exit 7"""
    said = subprocess.run([Path(__file__).with_name("run"), "--env", "NAME=a b", "--share", tmp_path,
                           "--timeout", "400", "bash", "-c", script],
                          cwd="/usr", capture_output=True, text=True, timeout=500, check=False)
    assert said.returncode == 7, said.stdout + said.stderr
    devices = [f"rxe{number}/1 state ACTIVE" for number in range(4)]
    assert said.stdout.splitlines() == [
        "a b in /usr", "read-only", *devices, "moved 50", "moved 50", "over the wire"]
    assert (tmp_path / "kept").read_text() == "kept\n"


def test_a_machine_that_does_not_end_is_ended(possible):
    result = vm.run(vm.Command(["sleep", "10000"]), timeout_s=2)[0]
    assert result.code == vm.TIMED_OUT
    assert "not done after 2 s" in result.console


def test_two_machines_reach_each_other_over_both_wires(possible):
    script = PERFTEST + """
      [ "$HIXLD_VM_NODE" = 1 ] || { serve write rxe0 1001 & serve read rxe1 1002; wait $!; exit; }
      until reach write rxe0 1001 10.77.0.1; do sleep 0.5; done
      until reach read rxe1 1002 10.78.0.1; do sleep 0.5; done"""
    server, client = vm.run(bash(script), timeout_s=500, nodes=2)
    assert server.code == 0, server.output + server.console
    assert client.code == 0, client.output + client.console
    assert [line for line in client.output.splitlines() if "moved" in line] == ["moved 50"] * 2


def test_without_qemu_the_reason_names_its_package(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    assert vm.why_not_possible() == f"{vm.QEMU} is not installed (package qemu-system-x86)"


def test_without_packages_the_reason_names_the_package(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(image, "KERNEL_META_PACKAGE", "linux-image-of-nobody")
    monkeypatch.setattr(image.os, "geteuid", lambda: 1000)
    with pytest.raises(image.ImageError, match="linux-image-of-nobody"):
        image.build()
    assert not (image.cache_directory() / "packages").exists()


def test_a_command_that_fails_gives_the_reason(tmp_path):
    with pytest.raises(image.ImageError, match="no-such-tool is not installed"):
        image._run(["no-such-tool"])
    with pytest.raises(image.ImageError, match="cannot access"):
        image._run(["ls", str(tmp_path / "missing")])
