"""Virtual environments with one package and its dependencies, without the service."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

UV: Final = Path(__file__).parent.parent.parent / ".uv" / "bin" / "uv"
INSTALL_SECONDS: Final = 240
RUN_SECONDS: Final = 120


class NotInstallableError(Exception):
    """A package cannot be installed here; the message is the installer's."""


def install(folder: Path, requirement: str) -> Path:
    """Create an environment with a package, given by name or wheel, and return its interpreter.

    Raises:
        NotInstallableError: The package or a dependency is unavailable.
    """
    python = folder / "bin" / "python"
    uv = shutil.which("uv") or (UV if UV.exists() else None)
    commands: list[list[str | Path]]
    if uv is None:
        commands = [[sys.executable, "-m", "venv", folder], [python, "-m", "pip", "install", "-q", requirement]]
    else:
        commands = [
            [uv, "venv", "-q", "--python", sys.executable, folder],
            [uv, "pip", "install", "-q", "--python", python, requirement],
        ]
    for command in commands:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_SECONDS)
        if done.returncode != 0:
            raise NotInstallableError(f"{requirement} cannot be installed here: {' '.join(done.stderr.split())[-200:]}")
    return python


def install_node(folder: Path, requirement: str) -> None:
    """Install an npm package below a new folder, without running its scripts.

    Raises:
        NotInstallableError: npm, the package or a dependency is unavailable.
    """
    if (npm := shutil.which("npm")) is None:
        raise NotInstallableError("there is no npm here")
    folder.mkdir(parents=True)
    options = ["--prefix", str(folder), "--ignore-scripts", "--no-audit", "--no-fund", "--no-package-lock"]
    command = [npm, "install", *options, requirement]
    done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_SECONDS)
    if done.returncode != 0:
        raise NotInstallableError(f"{requirement} cannot be installed here: {' '.join(done.stderr.split())[-200:]}")
