"""The version that landed before this one, in a directory of its own."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent
NAMED: Final = "EARSHOT_TEST_EARLIER"
#: Names of the branch on which versions land.
MAIN: Final = ("origin/main", "main")
#: What a service of the tests does not need: the largest model, and our tests.
LEFT_OUT: Final = (":!infra/models/whisper_base", ":!tests", ":!benchmarks")
#: Limit for the environment of a version with other dependencies.
INSTALL_SECONDS: Final = 600
GROUP: Final = "from streams.membership.assignor import Assignor; print(Assignor('', 1, '', 0, b'').name)"


class NoEarlier(Exception):
    """The version before cannot be had; the message says why."""


def earlier_commit() -> str:
    """Return the commit where this branch left the main branch, or the one before this if it is on it.

    EARSHOT_TEST_EARLIER names another one.

    Raises:
        NoEarlier: This is no clone, or it has no history.
    """
    if NAMED in os.environ:
        return os.environ[NAMED]
    here = _git("rev-parse", "HEAD")
    for branch in MAIN:
        if (base := _git("merge-base", branch, "HEAD")) not in ("", here):
            return base
    if not (before := _git("rev-parse", "--verify", "--quiet", "HEAD~")):
        raise NoEarlier("there is no commit before this one: not a clone, or one without history")
    return before


def make_earlier(directory: Path) -> Path:
    """Write the source tree of the version before to a new directory, with its own environment if it needs another.

    Raises:
        NoEarlier: This is no clone, it has no history, or the environment cannot be made.
    """
    commit = earlier_commit()
    directory.mkdir(parents=True)
    with subprocess.Popen(["git", "archive", commit, ".", *LEFT_OUT], cwd=ROOT, stdout=subprocess.PIPE) as archive:
        subprocess.run(["tar", "-x"], cwd=directory, stdin=archive.stdout, check=True)
    if archive.returncode:
        raise NoEarlier(f"git cannot write the files of {commit}")
    if (directory / "uv.lock").read_bytes() != (ROOT / "uv.lock").read_bytes():
        made = subprocess.run(
            ["make", ".venv/.extra-kafka"], cwd=directory, capture_output=True, text=True, timeout=INSTALL_SECONDS
        )
        if made.returncode:
            raise NoEarlier(f"{commit} has other dependencies, which cannot be installed: {made.stderr[-500:]}")
    return directory


def python(tree: Path) -> str:
    """Return the interpreter of a tree: its own, or ours."""
    own = tree / ".venv/bin/python"
    return str(own) if own.exists() else sys.executable


def group_protocol(tree: Path) -> str:
    """Return the name of the group protocol of a tree for some secret: equal names may be nodes of one group."""
    command = [python(tree), "-c", GROUP]
    return subprocess.run(command, cwd=tree, capture_output=True, text=True, check=True).stdout.strip()


def _git(*arguments: str) -> str:
    """Return what git prints, "" if it fails."""
    try:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    except FileNotFoundError:
        return ""
    return "" if done.returncode else done.stdout.strip()
