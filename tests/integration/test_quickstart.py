"""deploy/quickstart.sh, as the README tells a newcomer to run it."""

import subprocess

import pytest
from harness import hosts
from harness.installation import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

QUICKSTART = ROOT / "deploy/quickstart.sh"


def run(*arguments):
    return subprocess.run([QUICKSTART, *arguments], text=True, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=800, check=False)


@pytest.mark.parametrize("arguments", [["--local"], []], ids=["one daemon", "two nodes"])
def test_the_quickstart_shows_the_main_job(arguments):
    reason = hosts.why_not_allowed()
    if not arguments and reason:
        pytest.skip(reason)
    ended = run(*arguments)
    assert ended.returncode == 0, ended.stdout
    assert "tokens equal those of a single-process run: yes" in ended.stdout
    assert "All held." in ended.stdout


def test_an_unknown_option_is_named_with_the_allowed_ones():
    ended = run("--fast")
    assert ended.returncode == 2
    assert "unknown option --fast (allowed: --local, --keep)" in ended.stdout
