"""The vendor's public clients, unmodified, each in a virtual environment that is created once."""

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from tests.interop.environments import RUN_SECONDS, NotInstallableError, install

DRIVERS: Final = Path(__file__).with_name("drivers")


class Said(msgspec.Struct, frozen=True):
    """A driver's result: the value that the client returned, or the exception that it raised."""

    value: Any = None
    raised: str | None = None
    message: str = ""


class VendorClient(msgspec.Struct, frozen=True):
    """A release of a public client, and its driver."""

    package: str
    version: str
    driver: str

    def call(self, *arguments: str) -> Said:
        """Run the driver in the client's environment; skip if it cannot be created."""
        done = subprocess.run(
            [python(self.package, self.version), "-W", "ignore", DRIVERS / self.driver, *arguments],
            capture_output=True,
            text=True,
            timeout=RUN_SECONDS,
        )
        assert done.returncode == 0, done.stderr
        return msgspec.convert(json.loads(done.stdout.splitlines()[-1]), Said)


@cache
def python(package: str, version: str) -> Path:
    """Return the interpreter of an environment with one release, created in the user's cache if missing."""
    folder = cache_folder(package, version, sys.executable)
    folder.parent.mkdir(parents=True, exist_ok=True)
    # Tests in two processes may create it at the same time.
    with folder.with_name(f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "complete").exists():
            shutil.rmtree(folder, ignore_errors=True)
            try:
                install(folder, f"{package}=={version}")
            except NotInstallableError as error:
                pytest.skip(str(error))
            (folder / "complete").touch()
    return folder / "bin" / "python"


def cache_folder(package: str, version: str, interpreter: str) -> Path:
    """Return a release's cache folder for an interpreter."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "earshot" / "clients"
    return base / f"{package}-{version}-{hashlib.sha256(interpreter.encode()).hexdigest()[:8]}"
