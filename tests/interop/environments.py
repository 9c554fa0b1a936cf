"""What tests install once, each in a folder of its own below the user's cache; without it they are skipped."""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from tests.supply.lock import UV

CACHE: Final = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "earshot" / "clients"
#: Building Go's generator takes a minute of processor time.
INSTALL_SECONDS: Final = 1500
RUN_SECONDS: Final = 120


def kept(what: str, by: str | bytes, install: Callable[[Path], object]) -> Path:
    """Return the folder of something that is installed by some program or list, which is new if that is another."""
    key = hashlib.sha256(by.encode() if isinstance(by, str) else by).hexdigest()[:8]
    folder = CACHE / f"{what}-{key}"
    CACHE.mkdir(parents=True, exist_ok=True)
    # Tests in two processes may create it at the same time.
    with folder.with_name(f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "complete").exists():
            shutil.rmtree(folder, ignore_errors=True)
            install(folder)
            (folder / "complete").touch()
    return folder


def run(*command: str | Path, folder: Path | None = None, skip: bool = False, **more: str) -> str:
    """Return the output of a program that must succeed; with `skip`, its failure skips the test."""
    environment = {**os.environ, **more}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=INSTALL_SECONDS)
    output = done.stdout + done.stderr
    if skip and done.returncode:
        pytest.skip(f"{command[0]} cannot install what this needs: {' '.join(output.split())[-200:]}")
    assert done.returncode == 0, output
    return done.stdout


def python(package: str, version: str) -> Path:
    """Return the interpreter of an environment with one release of a package, without the service."""

    def install(folder: Path) -> None:
        made, requirement = folder / "bin" / "python", f"{package}=={version}"
        if shutil.which(UV) is None:
            run(sys.executable, "-m", "venv", folder)
            run(made, "-m", "pip", "install", "-q", requirement, skip=True)
        else:
            run(UV, "venv", "-q", "--python", sys.executable, folder)
            run(UV, "pip", "install", "-q", "--python", made, requirement, skip=True)

    return kept(f"{package}-{version}", sys.executable, install) / "bin" / "python"


def program(name: str) -> str:
    """Return the path of a program; skip without it."""
    if (found := shutil.which(name)) is None:
        pytest.skip(f"there is no {name} here")
    return found
