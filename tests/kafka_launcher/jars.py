"""Kafka's jar files: fetched once from Maven Central into the user's cache, never into the project."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from topics.errors import EarshotError

VERSION: Final = "4.4.0"
POM: Final = str(Path(__file__).with_name("pom.xml"))
FETCH_SECONDS: Final = 600


class LauncherError(EarshotError):
    """Kafka cannot be fetched or started; the message names what is missing and what to do."""


def cache_directory() -> Path:
    """Return the folder of the jars: under XDG_CACHE_HOME, else under ~/.cache."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "earshot" / f"kafka-{VERSION}"


def class_archive() -> Path:
    """Return the path of the classes that `launcher.archive_classes` keeps; it may not exist."""
    return cache_directory().with_name(f"kafka-{VERSION}.jsa")


def tool(name: str, package: str) -> str:
    """Return the path of a required program.

    Raises:
        LauncherError: It is not on the PATH.
    """
    path = shutil.which(name)
    if path is None:
        raise LauncherError(f"{name} is not on the PATH; Kafka needs it (Debian: apt-get install {package})")
    return path


def jars() -> Path:
    """Return the folder with all jars, fetching them (54 MB) if this user has none.

    Raises:
        LauncherError: No mvn or no network.
    """
    folder = cache_directory()
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix="fetching-") as scratch:
            made = Path(scratch) / "jars"
            _copy_dependencies(tool("mvn", "maven"), made)
            try:
                made.rename(folder)
            except OSError:  # Another process was faster: use its folder.
                if not folder.exists():
                    raise
    return folder


def _copy_dependencies(maven: str, target: Path) -> None:
    command = [maven, "-q", "-B", "-f", POM, "dependency:copy-dependencies", "-DincludeScope=runtime"]
    command.append(f"-DoutputDirectory={target}")
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=FETCH_SECONDS)
    except subprocess.TimeoutExpired:
        raise LauncherError(f"mvn did not fetch Kafka's jars in {FETCH_SECONDS} s") from None
    if done.returncode != 0:
        said = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        raise LauncherError("mvn could not fetch Kafka's jars: " + (said[0] if said else f"exit {done.returncode}"))
