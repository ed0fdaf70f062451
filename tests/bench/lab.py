"""What the rows of the tables need: daemons, nodes, and hixl-bench's results."""

import json
import os
import re
import shlex
import shutil
import statistics
import subprocess
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from harness.daemon import Daemon, new_cluster_key
from harness.hosts import Hosts, why_not_allowed

MIB = 1 << 20
# The best of what was tried: by default it carries 1 MiB at a tenth of this speed.
_UCX = ["UCX_TLS=tcp", "UCX_NET_DEVICES=lo", "UCX_TCP_PUT_ENABLE=n", "UCX_TCP_TX_SEG_SIZE=1m",
        "UCX_TCP_RX_SEG_SIZE=1m"]


class Unavailable(Exception):
    """This machine cannot run the row; the text says why."""


@dataclass
class Measured:
    """One line of a table."""

    work: str
    wanted: str
    value: str
    reached: object  # True, False, or None where nothing is asked for
    commands: list


class Lab:
    """Starts daemons once, on first use, and ends everything at the end."""

    def __init__(self, installation, quick):
        self.installation = installation
        self.quick = quick
        self._scratch = tempfile.TemporaryDirectory(prefix="hixld-tables-")
        self.directory = Path(self._scratch.name)
        self._daemons = {}
        self._hosts = None
        self._one_core = set()
        self._key = new_cluster_key(self.directory)
        self.commands = []

    def close(self):
        for daemon in self._daemons.values():
            daemon.finish()
        if self._hosts:
            self._hosts.close()
        self._scratch.cleanup()

    def daemon(self, name, config=None, **options):
        if name not in self._daemons:
            directory = self.directory / name.replace(" ", "-")
            directory.mkdir(mode=0o700)
            self._daemons[name] = Daemon(self.installation, directory, config=config,
                                         **options).start()
        return self._daemons[name]

    def local(self):
        """The daemon with the default configuration."""
        return self.daemon("default")

    def hopping(self, **config):
        """A daemon that carries every transfer itself, small ones included."""
        name = "hop " + _name_of(config)
        # Where clients never copy by themselves there is no key to turn that off.
        known = "direct:" in (self.installation.prefix / "etc" / "hixld.yaml").read_text()
        return self.daemon(name, {**({"local": {"direct": "off"}} if known else {}), **config})

    def _host(self, number):
        """One of two hosts. All that run in them, plain sockets and iperf3 too, have Linux's own
        default of congestion control, whatever this machine's is."""
        if self._hosts is None:
            reason = why_not_allowed()
            if reason:
                raise Unavailable(reason)
            self._hosts = Hosts(2)
            for host in self._hosts:
                subprocess.run(host.wrap(["sysctl", "-q", "-w", "net.ipv4.tcp_congestion_control=cubic"]),
                               check=True)
        return self._hosts[number]

    def nodes(self, mtu=1500, **config):
        """Two nodes joined by veth."""
        pair = [self.daemon(f"node {number} {_name_of(config)}", config or None,
                            host=self._host(number), cluster_key=self._key)
                for number in range(2)]
        for node in pair:
            node.host.ip("link", "set", node.host.interface, "mtu", str(mtu))
        return pair

    def _times(self, arguments):
        """How long rounds are and how many, where the row does not say it."""
        times = {"--rounds": "3" if self.quick else "5"}
        if "--iterations" not in arguments:
            times["--duration"] = "100ms" if self.quick else "1s"
        return [part for option, value in times.items() if option not in arguments
                for part in (option, value)]

    @staticmethod
    def workers(daemon):
        """How many threads of the daemon copy, as its log says."""
        return int(re.search(r"\bworkers=(\d+)", daemon.log())[1])

    def on_one_core(self, daemon):
        """The daemon's only worker and what is compared with it get the same core: in a virtual
        machine one core may copy at half the speed of the other. Its clients sleep meanwhile."""
        if self.workers(daemon) > 1:
            return
        for task in Path(f"/proc/{daemon.pid}/task").iterdir():
            if (task / "comm").read_text().startswith("hixld-w"):
                os.sched_setaffinity(int(task.name), {0})
        self._one_core.add(daemon)

    def _run(self, daemon, arguments):
        lines = self.directory / "results.jsonl"
        lines.unlink(missing_ok=True)
        command = [self.installation.prefix / "bin" / "hixl-bench", *map(str, arguments), "--quiet",
                   "--jsonl", lines]
        if daemon in self._one_core:
            command = ["taskset", "-c", "0", *command]
        result = subprocess.run(daemon.wrap(command), env=daemon.environment(), text=True,
                                capture_output=True, check=False)
        if result.returncode != 0:
            raise RuntimeError(f"hixl-bench {shlex.join(map(str, arguments))}: {result.stderr}")
        return [json.loads(line) for line in lines.read_text().splitlines()]

    def bench(self, daemon, *arguments):
        """hixl-bench on one daemon; returns one result per case."""
        self.commands.append(shlex.join(["hixl-bench", "--self", *map(str, arguments)]))
        return self._run(daemon, ["--self", *self._times(arguments), *arguments])

    def bench_between(self, pair, *arguments):
        """hixl-bench from the first node to the second."""
        here, there = pair
        command = [self.installation.prefix / "bin" / "hixl-bench", "target", "--engine",
                   there.host.address]
        target = subprocess.Popen(there.wrap(command), env=there.environment(), text=True,
                                  stdout=subprocess.PIPE)
        try:
            target.stdout.readline()
            address = target.stdout.readline().split()[-1]
            self.commands.append(shlex.join(["hixl-bench", "initiator", "--target", "IP:PORT",
                                             *map(str, arguments)]))
            return self._run(here, ["initiator", "--target", address,
                                    *self._times(arguments), *arguments])
        finally:
            target.terminate()
            target.wait(20)

    def bench_over_loopback(self, *arguments):
        """hixl-bench from one daemon to another on this host."""
        here, there = (self.daemon(f"loopback {number}", host=self._host(0)) for number in range(2))
        return self.bench(here, "--target-socket", there.socket, *arguments)

    def ucx(self, test, size, iterations):
        """Median microseconds and GB/s of ucx_perftest over loopback, median of three runs."""
        if shutil.which("ucx_perftest") is None:
            return None
        settings = ["env", *_UCX, "ucx_perftest", "-p", "14444"]
        client = [*settings, "127.0.0.1", "-t", test, "-s", str(size), "-n", str(iterations)]
        self.commands.append(shlex.join(client))
        results = []
        for _ in range(3):
            with _listening(self._host(0).wrap(["stdbuf", "-oL", *settings]), "Waiting for connection"):
                done = subprocess.run(self._host(0).wrap(client), capture_output=True, text=True, check=True)
            # Final: iterations, median, average and overall us, average and overall MiB/s, ...
            final = re.search(r"^Final:(.*)", done.stdout, re.MULTILINE)[1].split()
            results.append((float(final[1]), float(final[5]) * MIB / 1e9))
        return tuple(statistics.median(column) for column in zip(*results))

    def iperf3(self, pair, streams, reverse=False):
        """GB/s of iperf3 with zero copy between two nodes, the median of three runs."""
        here, there = pair
        client = ["iperf3", "-c", there.host.address, "-Z", "-P", str(streams), "-t",
                  "1" if self.quick else "3", "-J", *(["-R"] if reverse else [])]
        self.commands.append(shlex.join(client))
        rates = []
        for _ in range(3):
            with _listening(there.wrap(["iperf3", "-s", "-1", "--forceflush"]), "listening"):
                done = subprocess.run(here.wrap(client), capture_output=True, text=True, check=True)
            rates.append(json.loads(done.stdout)["end"]["sum_received"]["bits_per_second"] / 8e9)
        return statistics.median(rates)

    def python(self, daemon, script):
        """Runs a script with the installed package; returns the JSON that it prints."""
        done = subprocess.run(daemon.wrap(["/usr/bin/python3", "-c", script]), text=True,
                              env=daemon.environment(), capture_output=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(done.stderr)
        return json.loads(done.stdout)

    def serving(self, daemon, script):
        """Runs a script that prints "ready" and reads its standard input until the block ends."""
        return _serving(subprocess.Popen(daemon.wrap(["/usr/bin/python3", "-c", script]), text=True,
                                         env=daemon.environment(), stdin=subprocess.PIPE,
                                         stdout=subprocess.PIPE, stderr=subprocess.PIPE))


def _name_of(config):
    """What of a configuration fits the name of a directory."""
    return json.dumps(config, sort_keys=True).translate({ord(c): None for c in '{}":,'})


@contextmanager
def _listening(command, word):
    """A server that says `word` once it listens, until the block ends."""
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        while word not in (line := server.stdout.readline()):
            if not line:
                raise Unavailable(f"{command} does not start")
        yield
    finally:
        server.kill()
        server.communicate()


@contextmanager
def _serving(process):
    """A process that serves until the block ends."""
    try:
        if process.stdout.readline().strip() != "ready":
            raise RuntimeError(process.communicate()[1])
        yield
    finally:
        process.stdin.close()
        process.wait(60)


def processor_seconds(pid):
    """Of all threads that live, as the scheduler counts it; ticks would be 10 ms or nothing."""
    return sum(int((task / "schedstat").read_text().split()[0])
               for task in Path(f"/proc/{pid}/task").iterdir()) / 1e9


def resident_bytes(pid):
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def holdings(pid):
    """Descriptors, mappings and resident bytes of a process."""
    return (len(list(Path(f"/proc/{pid}/fd").iterdir())),
            len(Path(f"/proc/{pid}/maps").read_text().splitlines()), resident_bytes(pid))


def machine():
    """The machine in one line."""
    model = next((line.split(":", 1)[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
                  if line.startswith("model name")), os.uname().machine)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    return f"{os.cpu_count()} cores ({model}), {memory:.0f} GiB, Linux {os.uname().release}"


def wait(seconds):
    time.sleep(seconds)
