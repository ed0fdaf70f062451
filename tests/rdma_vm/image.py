"""Builds the kernel and initial file system of the test machine from Debian packages.

The packages are downloaded and unpacked once, never installed; what was made is kept in the cache
until the cache directory is removed, so that later runs need neither the network nor apt.
"""

import fcntl
import gzip
import lzma
import os
import shutil
import stat
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

KERNEL_META_PACKAGE = "linux-image-amd64"
BUSYBOX_PACKAGE = "busybox-static"
# The file system of the host, the network between machines, and RDMA over it.
MODULES = ["virtio_pci", "virtio_console", "virtio_net", "9pnet_virtio", "9p", "veth", "sch_netem",
           "dummy", "crc32_generic", "ib_uverbs", "rdma_rxe", "rdma_ucm"]
XZ_MAGIC = b"\xfd7zXZ\0"
INIT = Path(__file__).with_name("guest_init.sh")


class ImageError(Exception):
    """Says which package or tool is missing."""


@dataclass(frozen=True)
class Image:
    kernel: Path
    initramfs: Path
    release: str


def cache_directory():
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "hixld" / "rdma_vm"


def build():
    """Returns the image, made at the first call."""
    base = cache_directory()
    base.mkdir(parents=True, exist_ok=True)
    with open(base / "lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        packages = base / "packages"
        if not packages.exists():
            _fill(packages)
        return _assemble(base, packages)


def _fill(packages):
    """Makes the directory with the unpacked packages, whole or not at all."""
    with tempfile.TemporaryDirectory(dir=packages.parent) as scratch:
        unpacked = Path(scratch) / "unpacked"
        unpacked.mkdir()
        _unpack([_kernel_package(), BUSYBOX_PACKAGE], unpacked)
        unpacked.rename(packages)


def _assemble(base, packages):
    release = _release(packages)
    # The guest's start script is part of the image: a changed one makes a new image.
    stamp = INIT.read_bytes() + Path(__file__).read_bytes()
    image = Image(base / "vmlinux", base / "initramfs.gz", release)
    made_from = base / "made_from"
    if not made_from.exists() or made_from.read_bytes() != stamp:
        image.kernel.write_bytes(_bare_kernel(packages / "boot" / f"vmlinuz-{release}"))
        _write_initramfs(packages, release, image.initramfs)
        made_from.write_bytes(stamp)
    return image


def _release(packages):
    return next((packages / "lib" / "modules").iterdir()).name


def _bare_kernel(compressed):
    """The kernel without its own decompressor, which takes longer in an emulated processor than
    all the rest of its start."""
    data = compressed.read_bytes()
    start = data.find(XZ_MAGIC)
    if start < 0:
        raise ImageError(f"{compressed.name} is not compressed with xz")
    return lzma.LZMADecompressor().decompress(data[start:])


def _run(command, **options):
    try:
        return subprocess.run(command, check=True, capture_output=True, text=True, **options).stdout
    except FileNotFoundError as error:
        raise ImageError(f"{command[0]} is not installed") from error
    except subprocess.CalledProcessError as error:
        raise ImageError(f"{' '.join(command)}: {error.stderr.strip()}") from error


def _kernel_package():
    """The package with the kernel itself; the lists of packages are fetched where there are none."""
    try:
        return _first_dependency()
    except ImageError:
        if os.geteuid() != 0:
            raise
        _run(["apt-get", "-q", "update"])
        return _first_dependency()


def _first_dependency():
    said = _run(["apt-cache", "depends", KERNEL_META_PACKAGE])
    for line in said.splitlines():
        if line.strip().startswith("Depends:"):
            return line.split()[-1]
    raise ImageError(f"apt knows no package {KERNEL_META_PACKAGE}: run apt-get update")


def _unpack(packages, target):
    """Unpacks without installing: no boot loader or other hook of the host is touched."""
    with tempfile.TemporaryDirectory(dir=target) as scratch:
        os.chmod(scratch, 0o755)
        _run(["apt-get", "-q", "download", *packages], cwd=scratch)
        for archive in Path(scratch).glob("*.deb"):
            _run(["dpkg-deb", "-x", str(archive), str(target)])
    _run(["/sbin/depmod", "-b", str(target), _release(target)])


def _module_closure(base, release):
    """The modules and what they need, in an order in which they can be loaded."""
    needs = {}
    for line in (base / "lib" / "modules" / release / "modules.dep").read_text().splitlines():
        path, _, dependencies = line.partition(":")
        needs[path] = dependencies.split()
    by_name = {Path(path).name.split(".")[0].replace("-", "_"): path for path in needs}
    ordered = []

    def add(path):
        for dependency in needs[path]:
            add(dependency)
        if path not in ordered:
            ordered.append(path)

    for name in MODULES:
        if name not in by_name:
            raise ImageError(f"kernel {release} has no module {name}")
        add(by_name[name])
    return [base / "lib" / "modules" / release / path for path in ordered]


def _write_initramfs(base, release, target):
    modules = _module_closure(base, release)
    order = "".join(f"{path.name}\n" for path in modules).encode()
    temporary = target.with_suffix(".new")
    with gzip.open(temporary, "wb", compresslevel=1) as out:
        archive = _Cpio(out)
        for directory in ("bin", "modules", "proc", "sys", "dev", "host"):
            archive.add(directory, stat.S_IFDIR | 0o755)
        archive.add("dev/console", stat.S_IFCHR | 0o600, device=(5, 1))
        archive.add("bin/busybox", stat.S_IFREG | 0o755, (base / "bin" / "busybox").read_bytes())
        archive.add("init", stat.S_IFREG | 0o755, INIT.read_bytes())
        archive.add("modules/order", stat.S_IFREG | 0o644, order)
        for path in modules:
            archive.add(f"modules/{path.name}", stat.S_IFREG | 0o644, path.read_bytes())
        archive.close()
    shutil.move(temporary, target)


class _Cpio:
    """Writes the archive format that the kernel unpacks ("newc")."""

    def __init__(self, out):
        self._out = out
        self._inode = 0

    def add(self, name, mode, data=b"", device=(0, 0)):
        self._inode += 1
        encoded = name.encode() + b"\0"
        fields = [self._inode, mode, 0, 0, 1, 0, len(data), 0, 0, *device, len(encoded), 0]
        header = b"070701" + b"".join(b"%08x" % field for field in fields)
        self._write_padded(header + encoded)
        self._write_padded(data)

    def close(self):
        self.add("TRAILER!!!", 0)

    def _write_padded(self, data):
        self._out.write(data + b"\0" * (-len(data) % 4))
