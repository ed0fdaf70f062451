"""C++ programs against the installed headers and libraries, shared and static, old and new ABI."""

import subprocess
from pathlib import Path

import pytest
from harness.peer import free_port

HERE = Path(__file__).resolve().parent
FLAGS = "-O2 -ftrapv -fno-common -Wfloat-equal -Wall -Wextra -Werror".split()


def link_flags(installation, kind):
    lib = installation.prefix / "lib"
    if kind == "shared":
        return [f"-L{lib}", "-lcann_hixl", f"-Wl,-rpath,{lib}"]
    listed = (lib / "libcann_hixl.a.libs").read_text().split()
    return [str(lib / "libcann_hixl.a"), *listed]


def compiled(installation, tmp_path, source, standard="c++14", abi=1, kind="shared"):
    program = tmp_path / source.replace(".cc", f"-{standard}-{abi}-{kind}")
    command = ["g++", f"-std={standard}", f"-D_GLIBCXX_USE_CXX11_ABI={abi}", *FLAGS,
               "-I", installation.prefix / "include", HERE / source, "-o", program,
               *link_flags(installation, kind), "-pthread", "-lrt"]
    result = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return program


@pytest.mark.parametrize("standard, abi, kind", [("c++14", 1, "shared"), ("c++14", 0, "shared"),
                                                 ("c++20", 1, "shared"), ("c++17", 1, "static")])
def test_a_program_reads_another_ones_memory(installation, daemon, tmp_path, standard, abi, kind):
    program = compiled(installation, tmp_path, "two_engines.cc", standard, abi, kind)
    node = daemon()
    names = [f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"]
    result = subprocess.run([program, *names], env=node.environment(), capture_output=True, text=True,
                            timeout=60, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.splitlines()[-1] == "every check held"


def test_the_shared_library_needs_no_cann_and_exports_the_api_only(installation):
    library = installation.prefix / "lib" / "libcann_hixl.so"
    needed = subprocess.run(["readelf", "-d", library], capture_output=True, text=True, check=True).stdout
    assert not [line for line in needed.splitlines() if "NEEDED" in line and "ascend" in line.lower()]
    symbols = subprocess.run(["nm", "-D", "--defined-only", "-C", library], capture_output=True, text=True,
                             check=True).stdout
    names = [line.split(" ", 2)[2] for line in symbols.splitlines() if " T " in line]
    assert any(name.startswith("hixl::Hixl::Initialize(") for name in names)
    foreign = [n for n in names if n.startswith(("grpc", "absl::", "google::protobuf", "hixld::daemon"))]
    assert not foreign, foreign[:5]
