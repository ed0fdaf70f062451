"""The tree's own rules: arrows between rooms point one way, every folder says what it is."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# Which rooms' headers a room may include: proto <- transports <- daemon, proto <- client.
MAY_INCLUDE = {
    "proto": {"proto"},
    "config": {"proto", "config"},
    "transports": {"proto", "transports"},
    "daemon": {"proto", "config", "transports", "daemon"},
    "client": {"proto", "client"},
}
ROOMS = set(MAY_INCLUDE)
_INCLUDE = re.compile(r'^\s*#\s*include\s+["<]([^">]+)[">]', re.MULTILINE)


def tracked(*patterns):
    """Tracked and new files, so that a mistake shows before it is committed."""
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *patterns],
        cwd=ROOT, check=True, capture_output=True, text=True)
    return [Path(line) for line in listing.stdout.splitlines() if (ROOT / line).exists()]


def includes_of(path):
    return _INCLUDE.findall((ROOT / path).read_text(errors="replace"))


def sources():
    return [path for path in tracked("*.cc", "*.h") if path.parts[0] in ROOMS]


def test_there_is_something_to_check():
    assert len(sources()) > 10


def test_arrows_between_rooms_point_one_way():
    wrong = [f"{path} includes {header}" for path in sources() for header in includes_of(path)
             if header.split("/")[0] in ROOMS - MAY_INCLUDE[path.parts[0]]]
    assert not wrong, "\n".join(wrong)


def test_nothing_but_the_app_includes_the_rpc_services():
    wrong = [f"{path} includes {header}" for path in sources() for header in includes_of(path)
             if header.startswith("daemon/rpc/")
             and path.parts[:2] != ("daemon", "rpc") and path != Path("daemon/app.cc")
             and path.parts[:3] != ("tests", "daemon", "rpc")]
    assert not wrong, "\n".join(wrong)


def test_transports_know_no_grpc():
    wrong = [f"{path} includes {header}" for path in sources() if path.parts[0] == "transports"
             for header in includes_of(path)
             if header.startswith(("grpc", "proto/hixl/")) or header.endswith(".grpc.pb.h")]
    assert not wrong, "\n".join(wrong)


def test_public_headers_include_no_internal_ones():
    wrong = [f"{path} includes {header}" for path in tracked("client/include/**.h")
             for header in includes_of(path) if header.split("/")[0] in ROOMS]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("header", [str(p) for p in tracked("client/include/**.h")])
@pytest.mark.parametrize("standard", ["c++14", "c++20"])
def test_public_header_compiles_alone_without_a_warning(header, standard):
    command = ["g++", f"-std={standard}", "-fsyntax-only", "-Wall", "-Wextra", "-Wpedantic", "-Werror",
               "-D_GLIBCXX_USE_CXX11_ABI=0", "-I", "client/include", "-x", "c++", "-"]
    source = f'#include "{Path(header).relative_to("client/include")}"\n'
    result = subprocess.run(command, cwd=ROOT, input=source * 2, capture_output=True, text=True,
                            check=False)
    assert result.returncode == 0, result.stderr


def folders_with_files():
    return sorted({path.parent for path in tracked()
                   if path.parent != Path(".") and not path.parts[0].startswith(".")})


@pytest.mark.parametrize("folder", [str(folder) for folder in folders_with_files()])
def test_folder_has_a_readme_of_three_lines(folder):
    readme = ROOT / folder / "README.md"
    assert readme.exists(), f"{folder} has no README.md"
    lines = readme.read_text().splitlines()
    assert len(lines) == 3 and all(line.strip() for line in lines), f"{readme}: {len(lines)} lines"
