"""Sample programs, built with g++, pkg-config and CMake against an installation that was moved."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from harness.peer import free_port

SAMPLES = Path(__file__).resolve().parent / "samples"


def needs(program):
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")


def checked(command, **options):
    result = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False, **options)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def moved(installation, tmp_path_factory):
    """A copy elsewhere, without the Python package."""
    target = tmp_path_factory.mktemp("elsewhere") / "hixl"
    shutil.copytree(installation.prefix, target, symlinks=True, ignore=shutil.ignore_patterns("python"))
    return target


@pytest.fixture(scope="module")
def with_cmake(moved, tmp_path_factory):
    needs("cmake")
    build = tmp_path_factory.mktemp("cmake")
    checked(["cmake", "-S", SAMPLES, "-B", build, f"-DCMAKE_PREFIX_PATH={moved}"])
    checked(["cmake", "--build", build, "--parallel", "2"])
    return build


@pytest.fixture(scope="module")
def with_pkg_config(moved, tmp_path_factory):
    needs("pkg-config")
    build = tmp_path_factory.mktemp("pkgconfig")
    environment = {**os.environ, "PKG_CONFIG_PATH": str(moved / "lib/pkgconfig")}
    flags = checked(["pkg-config", "--cflags", "--libs", "cann_hixl"], env=environment).split()
    for name in ("server", "client", "one_process"):
        checked(["g++", "-std=c++14", SAMPLES / f"{name}.cc", "-o", build / name, *flags, "-pthread",
                 f"-Wl,-rpath,{moved}/lib"])
    return build


class Server:
    def __init__(self, program, node, placement, size):
        self.engine = f"127.0.0.1:{free_port()}"
        self._process = subprocess.Popen([str(program), self.engine, placement, str(size)], env=node.environment(),
                                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        line = self._process.stdout.readline()
        assert line, f"the server ended with {self._process.wait(10)}"
        self.address, self.sum = line.split()

    def sum_now(self):
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().strip()

    def end(self):
        self._process.stdin.close()
        assert self._process.wait(30) == 0


@pytest.fixture(params=["cmake", "pkg_config"])
def programs(request):
    return request.getfixturevalue(f"with_{request.param}")


@pytest.mark.parametrize("direction", ["read", "write"])
@pytest.mark.parametrize("local", ["host", "device"])
@pytest.mark.parametrize("remote", ["host", "device"])
def test_two_processes(programs, daemon, direction, local, remote):
    node = daemon()
    size = (1 << 20) + 1
    server = Server(programs / "server", node, remote, size)
    moved_sum = checked([programs / "client", server.engine, server.address, size, local, direction],
                        env=node.environment(), timeout=60).strip()
    if direction == "read":
        assert moved_sum == server.sum and server.sum_now() == server.sum
    else:
        assert moved_sum == server.sum_now() != server.sum
    server.end()


def test_static_library_with_cmake(with_cmake, daemon):
    node = daemon()
    server = Server(with_cmake / "server", node, "host", 4096)
    assert checked([with_cmake / "client_static", server.engine, server.address, 4096, "host", "read"],
                   env=node.environment(), timeout=60).strip() == server.sum
    server.end()


@pytest.mark.parametrize("direction", ["read", "write"])
@pytest.mark.parametrize("local", ["host", "device"])
@pytest.mark.parametrize("remote", ["host", "device"])
def test_one_process_with_two_engines_on_two_devices(programs, daemon, direction, local, remote):
    names = [f"127.0.0.1:{free_port()}" for _ in range(2)]
    assert checked([programs / "one_process", *names, local, remote, direction], env=daemon().environment(),
                   timeout=60) == f"{(1 << 20) + 1}\n"


def test_one_process_with_two_engines(with_cmake, daemon):
    node = daemon()
    output = checked([with_cmake / "both_libraries", *(f"127.0.0.1:{free_port()}" for _ in range(2))],
                     env=node.environment(), input="\n", timeout=60)
    assert output == "every check held\n"


def test_a_client_that_cannot_connect_says_why(with_cmake, daemon):
    result = subprocess.run([with_cmake / "client", f"127.0.0.1:{free_port()}", "4096", "16", "host", "read"],
                            env=daemon().environment(), capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 1 and "connect: FAILED" in result.stderr


def test_rule_0_1_cmake_versions_ok(moved, tmp_path):
    needs("cmake")
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.16)\nproject(p CXX)\nfind_package(llm_datadist 0.1 CONFIG REQUIRED)\n"
        "if(NOT TARGET cann_hixl OR NOT TARGET llm_datadist)\n  message(FATAL_ERROR \"no targets\")\nendif()\n")
    checked(["cmake", "-S", tmp_path, "-B", tmp_path / "b", f"-DCMAKE_PREFIX_PATH={moved}"])


def test_rule_0_1_cmake_versions_bad(moved, tmp_path):
    needs("cmake")
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.16)\nproject(p CXX)\nfind_package(cann_hixl 99 CONFIG REQUIRED)\n")
    result = subprocess.run(["cmake", "-S", tmp_path, "-B", tmp_path / "b", f"-DCMAKE_PREFIX_PATH={moved}"],
                            capture_output=True, text=True, check=False)
    assert result.returncode != 0 and "99" in result.stderr
