"""Finds, or makes, the installation that the tests run against."""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PREFIX_VARIABLE = "HIXLD_TEST_PREFIX"
BIN_DIR_VARIABLE = "HIXLD_TEST_BIN_DIR"


@dataclass(frozen=True)
class Installation:
    """A directory laid out by deploy/install.sh; `bin_dir` may be another build's daemon."""

    prefix: Path
    bin_dir: Path

    @property
    def hixld(self):
        return self.bin_dir / "hixld"

    @property
    def hixlctl(self):
        return self.prefix / "bin" / "hixlctl"

    @property
    def python_path(self):
        return self.prefix / "python"


def _existing(variable):
    path = Path(os.environ[variable]).resolve()
    if not path.is_dir():
        raise FileNotFoundError(f"{variable}={path} is not a directory")
    return path


def find_installation(scratch):
    """Uses HIXLD_TEST_PREFIX, else builds and installs into `scratch`."""
    if PREFIX_VARIABLE in os.environ:
        prefix = _existing(PREFIX_VARIABLE)
    else:
        prefix = Path(scratch) / "prefix"
        subprocess.run([ROOT / "deploy/install.sh", "--prefix", prefix], check=True)
    bin_dir = _existing(BIN_DIR_VARIABLE) if BIN_DIR_VARIABLE in os.environ else prefix / "bin"
    return Installation(prefix, bin_dir)
