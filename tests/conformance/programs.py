"""Compiles C++ programs against an installation."""

import subprocess
from pathlib import Path

HERE = Path(__file__).resolve().parent
FLAGS = "-O2 -ftrapv -fno-common -Wfloat-equal -Wall -Wextra -Werror".split()


def link_flags(installation, kind, libraries=("cann_hixl",)):
    lib = installation.prefix / "lib"
    if kind == "shared":
        return [f"-L{lib}", *(f"-l{name}" for name in libraries), f"-Wl,-rpath,{lib}"]
    listed = (lib / "libcann_hixl.a.libs").read_text().split()
    return [str(lib / "libcann_hixl.a"), *listed]


def compiled(installation, tmp_path, source, standard="c++14", abi=1, kind="shared",
             libraries=("cann_hixl",), includes=True, compiler="g++"):
    program = tmp_path / source.replace(".cc", f"-{standard}-{abi}-{kind}")
    command = [compiler, f"-std={standard}", f"-D_GLIBCXX_USE_CXX11_ABI={abi}", *FLAGS,
               *(["-I", installation.prefix / "include"] if includes else []), HERE / source, "-o", program,
               *link_flags(installation, kind, libraries), "-pthread", "-lrt"]
    result = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return program


def every_check_holds(program, *arguments, environment=None):
    result = subprocess.run([program, *arguments], env=environment, capture_output=True, text=True, input="",
                            timeout=60, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.splitlines()[-1] == "every check held"


def exported(library):
    """Demangled names of the functions that a shared library shows."""
    symbols = subprocess.run(["nm", "-D", "--defined-only", "-C", library], capture_output=True, text=True,
                             check=True).stdout
    return [line.split(" ", 2)[2] for line in symbols.splitlines() if " T " in line or " W " in line]
