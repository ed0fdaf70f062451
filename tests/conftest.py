"""Fixtures of the Python tests: an installation, daemons, hosts and client processes."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

from harness import hosts as hosts_module  # noqa: E402
from harness.daemon import Daemon, new_cluster_key  # noqa: E402
from harness.installation import find_installation  # noqa: E402
from harness.peer import Peer, engine_id  # noqa: E402
from harness.worker import Worker  # noqa: E402


@pytest.fixture(scope="session")
def installation(tmp_path_factory):
    return find_installation(tmp_path_factory.mktemp("installation"))


@pytest.fixture
def daemon(installation, tmp_path, request):
    """Factory of running daemons. Each must be alive and SERVING when the test ends, unless the
    test ended it, and must stop cleanly."""
    daemons = request.node.hixld_daemons = []

    def make(started=True, **options):
        directory = tmp_path / f"d{len(daemons)}"
        directory.mkdir(mode=0o700)
        made = Daemon(installation, directory, **options)
        daemons.append(made)
        return made.start() if started else made

    yield make
    problems = []
    for made in daemons:
        try:
            made.finish()
        except Exception as problem:  # every daemon is finished, whatever the first one did
            problems.append(problem)
    if problems:
        raise problems[0]


@pytest.fixture
def cluster_key(tmp_path):
    return new_cluster_key(tmp_path)


@pytest.fixture
def hosts():
    """Factory of hosts in network namespaces of their own; skips where those are not allowed."""
    made = []

    def make(count):
        reason = hosts_module.why_not_allowed()
        if reason:
            pytest.skip(reason)
        made.append(hosts_module.Hosts(count))
        return made[-1]

    yield make
    for group in made:
        group.close()


@pytest.fixture
def worker(request):
    """Factory of client processes, tied to a daemon."""
    request.getfixturevalue("daemon")  # so that clients end before their daemons
    workers = []

    def make(daemon, **options):
        workers.append(Worker(daemon, **options))
        return workers[-1]

    yield make
    for made in workers:
        made.close()


@pytest.fixture
def two_nodes(hosts, daemon, cluster_key):
    """Two hosts with a daemon each, in one cluster."""
    pair = hosts(2)
    return [daemon(host=host, cluster_key=cluster_key) for host in pair]


@pytest.fixture
def peer(worker):
    """Factory of client processes with an initialised engine."""

    def make(daemon, engine=None, options=None):
        return Peer(worker(daemon), engine or engine_id(daemon), options, daemon)

    return make


@pytest.fixture(params=["one daemon", "two nodes"])
def nodes_of_peers(request):
    """Where two engines are: on one daemon, and on two."""
    if request.param == "one daemon":
        node = request.getfixturevalue("daemon")()
        return [node, node]
    return request.getfixturevalue("two_nodes")


@pytest.fixture
def two_peers(nodes_of_peers, peer):
    """Two client processes, with an engine each."""
    return peer(nodes_of_peers[0]), peer(nodes_of_peers[1])


@pytest.fixture
def two_strict_peers(nodes_of_peers, peer):
    """The same, and only registered memory can be transferred."""
    return [peer(node, options={"BufferPool": "0:0"}) for node in nodes_of_peers]


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    if report.failed:
        for number, made in enumerate(getattr(item, "hixld_daemons", [])):
            report.sections.append((f"log of hixld {number}", made.log()[-20000:]))
