"""One daemon and one client process per module: rules are many and small.

`run(code)` runs Python in that client process, with the helpers of prelude.py at hand; engines that
the code makes are finalised after each test.
"""

from pathlib import Path

import pytest
from harness.daemon import Daemon
from harness.worker import Worker

_PRELUDE = Path(__file__).with_name("prelude.py").read_text()


class Lab:
    """A client process on a daemon; a new process is made when the old one has ended."""

    def __init__(self, node, environment=None):
        self.node = node
        self._environment = environment
        self._worker = None

    def run(self, code, timeout=60, **values):
        if self._worker is None or self._worker.process.poll() is not None:
            self._worker = Worker(self.node, environment=self._environment)
            self._worker.run(_PRELUDE)
        return self._worker.run(code, timeout, **values)

    def clean(self):
        if self._worker is not None and self._worker.process.poll() is None:
            self._worker.run("clean()")

    def close(self):
        if self._worker is not None:
            self._worker.close()


@pytest.fixture(scope="module")
def make_node(installation, tmp_path_factory):
    """Factory of daemons that live as long as the module's tests."""
    made = []

    def make(config=None):
        directory = tmp_path_factory.mktemp("node")
        made.append(Daemon(installation, directory, config=config).start())
        return made[-1]

    yield make
    for daemon in made:
        daemon.finish()


@pytest.fixture(scope="module")
def make_lab(make_node):
    """Factory of client processes, each on its own daemon unless one is given."""
    made = []

    def make(config=None, node=None, environment=None):
        made.append(Lab(node or make_node(config), environment))
        return made[-1]

    yield make
    for lab in made:
        lab.close()


@pytest.fixture(scope="module")
def lab(make_lab):
    return make_lab()


@pytest.fixture
def run(lab):
    yield lab.run
    lab.clean()
