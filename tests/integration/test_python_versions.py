"""The package imports and moves bytes on every CPython that it is built for."""

import glob
import os
import subprocess

import pytest
from harness.peer import SUCCESS, Peer, engine_id

VERSIONS = ["3.9", "3.10", "3.11", "3.12", "3.13"]


def interpreter(version):
    """A CPython of this version on this machine, or None."""
    candidates = [f"/usr/bin/python{version}", f"/usr/local/bin/python{version}",
                  *sorted(glob.glob(os.path.expanduser(f"~/.pyenv/versions/{version}.*/bin/python")))]
    for candidate in candidates:
        if os.access(candidate, os.X_OK):
            probe = "import sys; print('%d.%d' % sys.version_info[:2])"
            said = subprocess.run([candidate, "-c", probe], capture_output=True, text=True, check=False)
            if said.stdout.strip() == version:
                return candidate
    return None


@pytest.mark.parametrize("version", VERSIONS)
def test_imports_and_moves_bytes(installation, daemon, worker, version):
    python = interpreter(version)
    if python is None:
        pytest.skip(f"no CPython {version} on this machine")
    tag = "cpython-" + version.replace(".", "")
    if not list((installation.python_path / "hixl").glob(f"*{tag}*.so")):
        pytest.skip(f"built without CPython {version}: its headers were absent")
    node = daemon()
    here = Peer(worker(node, python=python), engine_id(node))
    there = Peer(worker(node, python=python), engine_id(node))
    for kind in ("pool", "plain"):
        local, remote = here.memory(1 << 20, kind), there.memory(1 << 20, kind, seed=1)
        if kind == "pool":
            assert here.connect(there.engine) == SUCCESS
        assert here.transfer(there.engine, "WRITE", [(local.address, remote.address, 4096)]) == SUCCESS
        assert here.transfer(there.engine, "READ", [(local.address, remote.address, 1 << 20)]) == SUCCESS
        assert local.crc() == remote.crc()
    assert here.run("import sys; '%d.%d' % sys.version_info[:2]") == version


def test_import_needs_neither_numpy_nor_torch_nor_a_daemon(installation):
    code = """
import sys
sys.modules['numpy'] = sys.modules['torch'] = None
import hixl
print(hixl.get_capability(hixl.FeatureType.AUTO_CONNECT))
"""
    environment = {"PYTHONPATH": str(installation.python_path), "HIXLD_SOCKET": "/nonexistent/hixld.sock"}
    said = subprocess.run(["/usr/bin/python3", "-c", code], env=environment, capture_output=True, text=True,
                          check=False)
    assert said.stdout.strip() == "(0, 1)", said.stderr
