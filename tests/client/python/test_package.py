"""The installed package alone: it imports on every CPython, its types say what it is."""

import ast
import glob
import json
import os
import subprocess

import pytest

VERSIONS = ["3.9", "3.10", "3.11", "3.12", "3.13"]


def interpreter(version):
    """A CPython of this version on this machine, or None."""
    names = [f"/usr/bin/python{version}", f"/usr/local/bin/python{version}",
             *sorted(glob.glob(os.path.expanduser(f"~/.pyenv/versions/{version}.*/bin/python")))]
    return next((name for name in names if os.access(name, os.X_OK)), None)


@pytest.fixture(params=VERSIONS)
def run(request, installation):
    """Runs code in a fresh interpreter without any daemon; returns what it prints, as JSON."""
    python = interpreter(request.param)
    if python is None:
        pytest.skip(f"no CPython {request.param} on this machine")
    tag = "cpython-" + request.param.replace(".", "")
    if not list((installation.python_path / "hixl").glob(f"hixl.{tag}-*.so")):
        pytest.skip(f"built without CPython {request.param}: its headers were absent")
    environment = {"PYTHONPATH": str(installation.python_path), "HIXLD_NO_AUTOSTART": "1",
                   "HIXLD_SOCKET": "/nonexistent/hixld.sock", "PYTHONDONTWRITEBYTECODE": "1"}

    def run(code):
        said = subprocess.run([python, "-c", "import json, hixl\n" + code], env=environment,
                              capture_output=True, text=True, timeout=60, check=False)
        assert said.returncode == 0, said.stderr
        return json.loads(said.stdout)

    return run


def test_an_engine_without_a_daemon_fails_and_says_which(run):
    status, text, repeated = run("""
engine = hixl.Hixl()
print(json.dumps([engine.initialize('127.0.0.1'), hixl.last_error(), engine.initialize('127.0.0.1')]))
""")
    assert status == repeated == 503900
    assert "/nonexistent/hixld.sock" in text


def test_calls_without_an_engine_answer_failed_and_raise_nothing(run):
    assert run("""
e = hixl.Hixl()
peer = '127.0.0.1:1'
piece = [hixl.TransferOpDesc(1, 1, 1)]
print(json.dumps([
    e.register_mem(hixl.MemDesc(1, 1), hixl.MEM_HOST), e.deregister_mem(0), e.connect(peer, -1),
    e.disconnect(peer), e.transfer_sync(peer, hixl.READ, piece),
    e.transfer_async(peer, hixl.READ, piece), e.register_mem_batch([], hixl.MEM_HOST),
    e.deregister_mem_batch([]), e.engine_id(), e.finalize(), e.finalize()]))
""") == [[503900, 0], 503900, 503900, 503900, 503900, [503900, 0], [503900, []], 503900, "", None, None]


def test_arrays_must_be_three_of_one_length_and_64_bits(run):
    assert run("""
from array import array
e = hixl.Hixl()
def outcome(*arrays):
    try:
        return e.transfer_sync_arrays('127.0.0.1:1', hixl.READ, *arrays)
    except (TypeError, ValueError) as problem:
        return type(problem).__name__
good = array('Q', [1, 2])
print(json.dumps([
    outcome(good, good, good), outcome(array('q', [1, 2]), good, good),
    outcome(good, good, array('Q', [1])), outcome(array('I', [1, 2]), good, good),
    outcome(array('d', [1, 2]), good, good), outcome([1, 2], good, good),
    outcome(memoryview(array('Q', [1, 2, 3, 4]))[::2], good, good)]))
""") == [503900, 503900, "ValueError", "TypeError", "TypeError", "TypeError", "TypeError"]


def test_log_levels(run):
    assert run("""
hixl.set_log_level('ERROR')
try:
    hixl.set_log_level('LOUD')
    outcome = 'accepted'
except ValueError as problem:
    outcome = str(problem)
print(json.dumps(outcome))
""").startswith("PARAM_INVALID")


def stub(installation):
    tree = ast.parse((installation.python_path / "hixl" / "__init__.pyi").read_text())
    names, methods = set(), {}
    for node in tree.body:
        if isinstance(node, ast.AnnAssign):
            names.add(node.target.id)
        elif isinstance(node, ast.FunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            names.add(node.name)
            methods[node.name] = {
                part.target.id if isinstance(part, ast.AnnAssign) else part.name
                for part in node.body if isinstance(part, (ast.AnnAssign, ast.FunctionDef))}
    return names, methods


def test_the_types_name_what_the_package_has(run, installation):
    names, methods = stub(installation)
    classes = sorted(methods)
    public, exported, members = run(f"""
print(json.dumps([
    [name for name in dir(hixl) if not name.startswith('_') and name != 'hixl'], hixl.__all__,
    {{name: [m for m in dir(getattr(hixl, name)) if not m.startswith('_')] for name in {classes}}}]))
""")
    assert set(public) == names - {"__version__"}
    assert set(exported) <= names
    for name in classes:
        own = set(members[name]) - {"name", "value"} if "__members__" not in methods[name] else set()
        written = {member for member in methods[name] if not member.startswith("_")} - {"name", "value"}
        assert own == written, name
