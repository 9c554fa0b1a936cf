"""A place in the data directory for what libraries write elsewhere, as on a read-only root file system."""

import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

import streams.audio
from infra.errors import unusable, variable

#: Part of the data directory. It can be removed while the service is stopped.
CACHE: Final = "cache"
#: numba keeps the kernels that it compiled in the directory of this variable, or else beside their source.
KERNELS: Final = "NUMBA_CACHE_DIR"
KERNEL_BYTES: Final = 1 << 20
BESIDE: Final = Path(streams.audio.__file__).parent / "__pycache__"
#: The kind of processor that numba compiles for, if not this one. `MODERN` ones have `NEEDED`, and older ones do not.
PROCESSOR: Final = "NUMBA_CPU_NAME"
MODERN, NEEDED = "x86-64-v3", "avx2"
PROCESSORS: Final = Path("/proc/cpuinfo")


def prepare() -> None:
    """Set TMPDIR and NUMBA_CACHE_DIR to the data directory if their usual places cannot be written.

    SQLite and child processes follow these variables too. Kernels that were compiled into a directory that cannot be
    written, as in an image, come along. Call this before anything imports the kernels.

    Raises:
        WrongSetting: the data directory is needed, and cannot be written either.
    """
    if os.environ.get(PROCESSOR) == MODERN and NEEDED not in PROCESSORS.read_text().split():
        del os.environ[PROCESSOR]
    data = Path(os.environ.get(variable("data")) or "data").expanduser().absolute()
    try:
        tempfile.gettempdir()
    except FileNotFoundError:
        _use("TMPDIR", data / CACHE / "tmp")
    chosen = os.environ.get(KERNELS)
    if not (chosen and _is_writable(Path(chosen))) and not _is_writable(BESIDE):
        kernels = data / CACHE / "kernels"
        # A service whose disk is full starts with those that it has.
        _use(KERNELS, kernels, 0 if any(kernels.rglob("*.nbc")) else KERNEL_BYTES)
        if chosen:
            with suppress(OSError):  # They are compiled again.
                shutil.copytree(chosen, kernels, dirs_exist_ok=True)


def _use(name: str, directory: Path, size: int = 0) -> None:
    try:
        for one in (directory.parent.parent, directory.parent, directory):
            one.mkdir(mode=0o700, parents=True, exist_ok=True)
        _try(directory, size)
    except OSError as error:
        raise unusable("data", directory.parent.parent, "cannot be written", error) from error
    os.environ[name] = str(directory)


def _is_writable(directory: Path) -> bool:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        _try(directory)
    except OSError:
        return False
    return True


def _try(directory: Path, size: int = 0) -> None:
    """Write into a directory, as numba does, because permissions are not the only possible obstacle."""
    with tempfile.TemporaryFile(dir=directory) as file:
        file.write(bytes(size))
