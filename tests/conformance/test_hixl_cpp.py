"""Contract 0, 1.1, 1.2 and 1.14: C++ programs against the installed headers and libraries."""

import json
import shutil
import subprocess

import pytest
from harness.peer import free_port
from programs import compiled, every_check_holds, exported


def names():
    return [f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"]


@pytest.mark.parametrize("standard, abi, kind", [("c++14", 1, "shared"), ("c++14", 0, "shared"),
                                                 ("c++20", 1, "shared"), ("c++17", 1, "static")])
def test_a_program_reads_another_ones_memory(installation, daemon, tmp_path, standard, abi, kind):
    program = compiled(installation, tmp_path, "two_engines.cc", standard, abi, kind)
    every_check_holds(program, *names(), environment=daemon().environment())


# --- 0.1 -------------------------------------------------------------------------------------------

def headers(installation):
    root = installation.prefix / "include"
    return sorted(str(path.relative_to(root)) for path in root.rglob("*.h"))


@pytest.mark.parametrize("compiler", ["g++", "clang++"])
@pytest.mark.parametrize("abi", [0, 1])
def test_rule_0_1_headers_ok(installation, compiler, abi):
    # Each alone, all together in both orders, and twice.
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    found = headers(installation)
    assert {"hixl/hixl.h", "hixl/hixl_types.h", "adxl/adxl_engine.h", "adxl/adxl_types.h",
            "external/ge_common/api_error_codes.h"} <= set(found)
    for chosen in [[header] for header in found] + [found, found[::-1]]:
        source = "".join(f'#include "{header}"\n' for header in chosen * 2)
        result = subprocess.run(
            [compiler, "-std=c++14", f"-D_GLIBCXX_USE_CXX11_ABI={abi}", "-fsyntax-only", "-Wall", "-Wextra",
             "-Werror", "-Wfloat-equal", "-ftrapv", "-I", installation.prefix / "include", "-x", "c++", "-"],
            input=source, capture_output=True, text=True, check=False)
        assert result.returncode == 0, (chosen, result.stderr)


def test_rule_0_1_visibility_ok(installation):
    # With FUNC_VISIBILITY the classes have default visibility, whatever the program's own default.
    source = '#define FUNC_VISIBILITY\n#include "hixl/hixl.h"\n#include "adxl/adxl_engine.h"\nint main() {}\n'
    result = subprocess.run(["g++", "-std=c++14", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror", "-fsyntax-only",
                             "-I", installation.prefix / "include", "-x", "c++", "-"],
                            input=source, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


def test_rule_0_1_libraries_ok(installation):
    # Both are there, the second stands on the first, and neither brings the other's insides.
    lib = installation.prefix / "lib"
    needed = subprocess.run(["readelf", "-d", lib / "libllm_datadist.so"], capture_output=True, text=True,
                            check=True).stdout
    libraries = [line.split("[")[1].split("]")[0] for line in needed.splitlines() if "NEEDED" in line]
    assert "libcann_hixl.so" in libraries
    assert not [name for name in libraries if "grpc" in name or "protobuf" in name]
    assert "$ORIGIN" in needed
    assert (lib / "libllm_datadist.so").stat().st_size < 1 << 20


def test_rule_0_1_libraries_bad(installation):
    # No CANN is needed, and nothing but the API is shown.
    for name in ("libcann_hixl.so", "libllm_datadist.so"):
        library = installation.prefix / "lib" / name
        needed = subprocess.run(["readelf", "-d", library], capture_output=True, text=True, check=True).stdout
        assert not [line for line in needed.splitlines() if "NEEDED" in line and "ascend" in line.lower()]
        foreign = [n for n in exported(library)
                   if not n.startswith(("hixl::", "adxl::", "ge::", "_init", "_fini"))]
        assert not foreign, foreign[:5]


# --- 0.2, 0.4, 1.1, 1.2: values, layouts, signatures ---------------------------------------------------

@pytest.mark.parametrize("standard, abi", [("c++14", 0), ("c++14", 1), ("c++20", 1)])
def test_rule_1_1_values_ok(installation, tmp_path, standard, abi):
    every_check_holds(compiled(installation, tmp_path, "values.cc", standard, abi,
                               libraries=("llm_datadist", "cann_hixl")))


@pytest.mark.parametrize("abi", [0, 1])
def test_rule_0_3_strings_ok(installation, daemon, tmp_path, abi):
    program = compiled(installation, tmp_path, "strings.cc", abi=abi)
    every_check_holds(program, environment=daemon().environment())


@pytest.mark.parametrize("line", [
    "hixl::Hixl a; hixl::Hixl b(a);", "hixl::TransferStatus s = 0; (void)s;", "hixl::MemType t = 1; (void)t;",
    "hixl::Hixl e; e.Initialize(\"127.0.0.1\");", "int v = hixl::AsyncConnectStatus::CONNECTED; (void)v;",
    "hixl::Hixl e; hixl::TransferReq r; e.TransferAsync(\"a\", hixl::READ, {}, r);"])
def test_rule_1_1_values_bad(installation, line):
    # What must not compile: copies, numbers for enums, calls without their arguments.
    source = f'#include "hixl/hixl.h"\nint main() {{ {line} }}\n'
    result = subprocess.run(["g++", "-std=c++14", "-fsyntax-only", "-I", installation.prefix / "include", "-x", "c++",
                             "-"], input=source, capture_output=True, text=True, check=False)
    assert result.returncode != 0


# --- 1.14: the deprecated names ------------------------------------------------------------------------

MANGLED = """
_ZN4adxl10AdxlEngineC1Ev _ZN4adxl10AdxlEngineD1Ev _ZN4adxl10AdxlEngine8FinalizeEv
_ZN4adxl10AdxlEngine11RegisterMemERKNS_7MemDescENS_7MemTypeERPv _ZN4adxl10AdxlEngine13DeregisterMemEPv
_ZN4adxl10AdxlEngine7ConnectERKN2ge12AscendStringEi _ZN4adxl10AdxlEngine10DisconnectERKN2ge12AscendStringEi
_ZN4adxl10AdxlEngine9MallocMemENS_7MemTypeEmPPv _ZN4adxl10AdxlEngine7FreeMemEPv
_ZN4adxl10AdxlEngine23ExportToShareableHandleEPvR20aclrtMemFabricHandle
_ZN4adxl10AdxlEngine13GetCapabilityENS_11FeatureTypeERi
_ZN4adxl10AdxlEngine17GetTransferStatusERKPvRNS_14TransferStatusE
_ZN2ge12AscendStringC1EPKc _ZN2ge12AscendStringC1EPKcm _ZNK2ge12AscendString9GetStringEv
""".split()


def test_rule_1_14_symbols_ok(installation):
    library = installation.prefix / "lib" / "libllm_datadist.so"
    symbols = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True,
                             check=True).stdout.split()
    assert [name for name in MANGLED if name not in symbols] == []


@pytest.mark.parametrize("abi", [0, 1])
def test_rule_1_14_declares_itself_ok(installation, daemon, tmp_path, abi):
    # No header of ours, one library named on the command line.
    program = compiled(installation, tmp_path, "declares_itself.cc", abi=abi, libraries=("llm_datadist",),
                       includes=False)
    every_check_holds(program, *names(), environment=daemon().environment())


def test_rule_1_14_one_process_one_session_ok(installation, daemon, tmp_path):
    program = compiled(installation, tmp_path, "both_libraries.cc", libraries=("llm_datadist", "cann_hixl"))
    node = daemon()
    process = subprocess.Popen([program, *names()], env=node.environment(), stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "every check held\n"
    sessions = json.loads(node.ctl("--json", "sessions").stdout)["sessions"]
    process.communicate("\n", timeout=30)
    assert process.returncode == 0
    assert [(s["pid"], s["engines"]) for s in sessions] == [(process.pid, 2)]


def test_rule_1_14_bad(installation, daemon, tmp_path):
    # What is refused under the new name is refused under the old one: the programs above check it.
    test_rule_1_14_declares_itself_ok(installation, daemon, tmp_path, 1)
