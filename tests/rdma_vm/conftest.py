"""What the tests in the emulated machine share."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

import vm  # noqa: E402


@pytest.fixture(scope="session")
def possible():
    """Skips, with the reason, where no machine can be emulated."""
    reason = vm.why_not_possible()
    if reason:
        pytest.skip(reason)
