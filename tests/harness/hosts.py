"""Nodes made of network namespaces: one or more joined by veth, with IPv4 and IPv6 addresses."""

import itertools
import json
import os
import subprocess
from dataclasses import dataclass

_numbers = itertools.count()


def _ip(*arguments, check=True):
    return subprocess.run(["ip", *arguments], check=check, capture_output=True, text=True)


def why_not_allowed():
    """None where network namespaces can be made, else the reason."""
    name = f"hx{os.getpid()}probe"
    try:
        result = _ip("netns", "add", name, check=False)
    except FileNotFoundError:
        return "the command `ip` is not installed"
    if result.returncode != 0:
        return f"network namespaces are not allowed here: {result.stderr.strip()}"
    link = _ip("-n", name, "link", "add", "probe", "type", "veth", check=False)
    _ip("netns", "del", name, check=False)
    return None if link.returncode == 0 else f"veth is not allowed here: {link.stderr.strip()}"


@dataclass(frozen=True)
class Host:
    namespace: str
    address: str
    address6: str
    interface: str = "data0"

    def wrap(self, command):
        """The command, run inside this host; the process keeps the pid that Popen returns."""
        return ["ip", "netns", "exec", self.namespace, *map(str, command)]

    def ip(self, *arguments):
        return _ip("-n", self.namespace, *arguments)

    def sent_bytes(self, interface):
        shown = json.loads(self.ip("-s", "-j", "link", "show", "dev", interface).stdout)
        return shown[0]["stats64"]["tx"]["bytes"]


class Hosts:
    """`count` hosts on one network: a direct veth pair for two, a bridge for more."""

    def __init__(self, count):
        self._prefix = f"hx{os.getpid()}n{next(_numbers)}"
        self._namespaces = []
        self.hosts = []
        try:
            self._build(count)
        except BaseException:
            self.close()
            raise

    def _namespace(self, suffix):
        name = f"{self._prefix}{suffix}"
        _ip("netns", "add", name)
        self._namespaces.append(name)
        _ip("-n", name, "link", "set", "lo", "up")
        return name

    def _build(self, count):
        names = [self._namespace(f"h{index}") for index in range(count)]
        if count == 2:
            _ip("-n", names[0], "link", "add", "data0", "type", "veth",
                "peer", "name", "data0", "netns", names[1])
        else:
            self._build_bridge(names)
        for index, name in enumerate(names, start=1):
            host = Host(name, f"10.77.0.{index}", f"fd77::{index}")
            host.ip("addr", "add", f"{host.address}/24", "dev", "data0")
            host.ip("addr", "add", f"{host.address6}/64", "dev", "data0", "nodad")
            host.ip("link", "set", "data0", "up")
            self.hosts.append(host)

    def _build_bridge(self, names):
        switch = self._namespace("sw")
        _ip("-n", switch, "link", "add", "bridge0", "type", "bridge")
        _ip("-n", switch, "link", "set", "bridge0", "up")
        for index, name in enumerate(names):
            port = f"port{index}"
            _ip("-n", switch, "link", "add", port, "type", "veth",
                "peer", "name", "data0", "netns", name)
            _ip("-n", switch, "link", "set", port, "master", "bridge0")
            _ip("-n", switch, "link", "set", port, "up")

    def add_cables(self, count):
        """`count` further networks between two hosts: data1, data2, ... with 10.77.N.1 and .2."""
        first, second = self.hosts
        for number in range(1, count + 1):
            interface = f"data{number}"
            first.ip("link", "add", interface, "type", "veth",
                     "peer", "name", interface, "netns", second.namespace)
            for index, host in enumerate(self.hosts, start=1):
                host.ip("addr", "add", f"10.77.{number}.{index}/24", "dev", interface)
                host.ip("link", "set", interface, "up")

    def close(self):
        for name in self._namespaces:
            _ip("netns", "del", name, check=False)
        self._namespaces = []

    def __getitem__(self, index):
        return self.hosts[index]

    def __len__(self):
        return len(self.hosts)
