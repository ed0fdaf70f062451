"""Test machines with RDMA devices: qemu without hardware help, the host's files as they are."""

import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import image

HERE = Path(__file__).resolve().parent
QEMU = "qemu-system-x86_64"
# The machine itself failed: it did not start or did not report.
MACHINE_FAILED = 125
TIMED_OUT = 124


def why_not_possible():
    """None, or why no machine can run here."""
    if os.uname().machine != "x86_64":
        return f"the test machine needs x86_64, this is {os.uname().machine}"
    if shutil.which(QEMU) is None:
        return f"{QEMU} is not installed (package qemu-system-x86)"
    try:
        image.build()
    except (image.ImageError, OSError) as error:
        return f"no image for the test machine: {error}"
    return None


@dataclass
class Result:
    code: int
    output: str
    console: str = ""


@dataclass
class Command:
    """What a machine runs. `shares` are host directories that it may write to, at their own
    paths; everything else of the host is read-only there, and /tmp and /run are its own."""
    argv: list
    cwd: str = "/"
    env: dict = field(default_factory=dict)
    shares: list = field(default_factory=list)


class Machine:
    """One machine that runs one command. Ended by `close` whatever happens."""

    def __init__(self, command, directory, node=0, nodes=1, memory_mib=1536, cpus=2):
        self._directory = Path(directory) / f"node{node}"
        self._directory.mkdir(mode=0o700)
        self._write_inputs(command, node, nodes)
        files = image.build()
        arguments = [
            # A machine does not outlive who asked for it.
            "setpriv", "--pdeathsig", "KILL",
            QEMU, "-accel", "tcg,thread=multi", "-cpu", "max,la57=off", "-smp", str(cpus),
            "-m", str(memory_mib), "-nodefaults", "-display", "none", "-no-reboot",
            "-kernel", str(files.kernel), "-initrd", str(files.initramfs),
            "-append", "console=ttyS0 quiet panic=-1 mitigations=off random.trust_cpu=on no_timer_check"
            # Else each look at the clock is a system call.
            " clocksource=tsc tsc=reliable",
            "-serial", f"file:{self._directory / 'console'}",
            "-device", "virtio-serial-pci",
            *self._port(1, "output"), *self._port(2, "code"),
            *self._files("/", "host", "on"), *self._files(self._directory, "machine", "off"),
        ]
        for index, path in enumerate(command.shares):
            arguments += self._files(path, f"share{index}", "off")
        if nodes > 1:
            arguments += self._cards(Path(directory), node)
        self._process = subprocess.Popen(
            arguments, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            text=True, start_new_session=True)

    def _write_inputs(self, command, node, nodes):
        environment = {"HIXLD_VM_NODE": str(node), "HIXLD_VM_NODES": str(nodes)}
        lines = [f"export {name}={shlex.quote(value)}\n"
                 for name, value in {**environment, **command.env}.items()]
        (self._directory / "environment").write_text("".join(lines))
        (self._directory / "shares").write_text("".join(f"{path}\n" for path in command.shares))
        (self._directory / "command.sh").write_text(
            f". /run/machine/environment\ncd {shlex.quote(command.cwd)} || exit 126\n"
            f"exec {shlex.join(command.argv)}\n")
        shutil.copy(HERE / "network.sh", self._directory)
        for name in ("output", "code", "console"):
            (self._directory / name).touch()

    def _port(self, number, name):
        return ["-chardev", f"file,id={name},path={self._directory / name}",
                "-device", f"virtserialport,chardev={name},nr={number}"]

    @staticmethod
    def _files(path, tag, readonly):
        path = str(path).replace(",", ",,")
        return ["-virtfs", f"local,path={path},mount_tag={tag},security_model=none,"
                           f"readonly={readonly},multidevs=remap"]

    @staticmethod
    def _cards(directory, node):
        """Two network cards, each wired to the other machine's by a pair of sockets."""
        arguments = []
        for card in range(2):
            here, there = (directory / f"wire{card}.{end}" for end in (node, 1 - node))
            arguments += [
                "-netdev", f"dgram,id=n{card},local.type=unix,local.path={here},"
                           f"remote.type=unix,remote.path={there}",
                "-device", f"virtio-net-pci,netdev=n{card},host_mtu=9000,"
                           f"mac=52:54:00:77:{card:02x}:{node + 1:02x}"]
        return arguments

    @property
    def output_path(self):
        return self._directory / "output"

    def output(self):
        return self.output_path.read_text(errors="replace")

    def console(self):
        return (self._directory / "console").read_text(errors="replace")

    def running(self):
        return self._process.poll() is None

    def result(self):
        """Of a machine that has ended."""
        output, console = self.output(), self.console()
        code = (self._directory / "code").read_text().strip()
        if not code.isdigit():
            errors = self._process.stderr.read()
            return Result(MACHINE_FAILED, output, f"{console}{errors}")
        return Result(int(code), output, console)

    def close(self):
        if self.running():
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._process.stderr.close()


def run(command, timeout_s=120, nodes=1, stream=None, **machine_options):
    """Runs the command in `nodes` machines (1 or 2, told apart by HIXLD_VM_NODE) and returns one
    Result per machine. A machine that is not done in time ends with TIMED_OUT. `stream`, if
    given, gets the first machine's output as it comes."""
    machines = []
    with tempfile.TemporaryDirectory(prefix="hixld-vm-") as directory:
        try:
            for node in range(nodes):
                machines.append(Machine(command, directory, node, nodes, **machine_options))
            in_time = _wait(machines, time.monotonic() + timeout_s, stream)
            return [_result(machine, in_time, timeout_s) for machine in machines]
        finally:
            for machine in machines:
                machine.close()


def _wait(machines, deadline, stream):
    with open(machines[0].output_path, "rb") as output:
        while True:
            running = any(machine.running() for machine in machines)
            if stream is not None:
                stream.write(output.read())
                stream.flush()
            if not running:
                return True
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)


def _result(machine, in_time, timeout_s):
    if in_time or not machine.running():
        return machine.result()
    return Result(TIMED_OUT, machine.output(), f"{machine.console()}\nnot done after {timeout_s} s\n")


def main(arguments):
    import argparse
    parser = argparse.ArgumentParser(
        prog="tests/rdma_vm/run", description="Runs a command in a test machine with RDMA devices.")
    parser.add_argument("--nodes", type=int, choices=(1, 2), default=1)
    parser.add_argument("--timeout", type=float, default=120, help="seconds (default 120)")
    parser.add_argument("--memory", type=int, default=1536, help="MiB per machine")
    parser.add_argument("--share", action="append", default=[], metavar="DIR",
                        help="host directory that the machine may write to, at its own path")
    parser.add_argument("--env", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args(arguments)
    if not options.command:
        parser.error("no command given")
    reason = why_not_possible()
    if reason:
        print(reason, file=sys.stderr)
        return MACHINE_FAILED
    command = Command(options.command, os.getcwd(), dict(e.split("=", 1) for e in options.env),
                      [str(Path(path).resolve()) for path in options.share])
    results = run(command, options.timeout, options.nodes, stream=sys.stdout.buffer,
                  memory_mib=options.memory)
    for node, result in enumerate(results):
        if node > 0:
            print(f"--- node {node}\n{result.output}", end="")
        if result.code in (MACHINE_FAILED, TIMED_OUT):
            print(f"--- console of node {node}\n{result.console}", file=sys.stderr)
    return next((result.code for result in results if result.code), 0)
