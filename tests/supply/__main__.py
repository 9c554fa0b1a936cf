"""What is installed, and what could be: `python -m tests.supply audit [--offline]` checks it, `licences` lists it.

`python -m tests.supply hooks` says which private names the newest uvicorn, httptools and websockets lack.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator
from tempfile import TemporaryDirectory
from typing import Final

from tests.conftest import ROOT
from tests.supply import licences, lock

LIBRARIES: Final = ("uvicorn", "httptools", "websockets")
CHECK: Final = """
from infra.transport.http_hooks import check_hooks
from topics.errors import ServiceError
try:
    check_hooks()
except ServiceError as error:
    raise SystemExit(f"{error}")
print("they have every name that connections use")
"""


def offline_faults(uv: str) -> Iterator[str]:
    """Yield faults that can be found offline: in sources, hashes, licences, and their page."""
    purposes, here = lock.purposes(uv), licences.installed()
    yield from lock.faults(lock.LOCK["package"])
    yield from licences.faults({name: one for name, one in here.items() if name in purposes})
    yield from licences.differences(licences.PAGE.read_text(encoding="utf-8"), here, purposes)


def yanked(uv: str) -> tuple[bool, str]:
    """Check every locked version against the index; return whether it answered, and the withdrawn versions."""
    every = ("--all-extras", "--all-groups", "--no-hashes", "--no-emit-project", "--no-annotate", "--no-header")
    pins = _run(uv, "export", "--quiet", "--locked", *every).stdout
    done = _run(uv, "pip", "compile", "--no-deps", "--no-header", "--universal", "-", given=pins)
    withdrawn = [line for line in done.stderr.splitlines() if " is yanked" in line]
    return done.returncode == 0 or bool(withdrawn), "\n".join(withdrawn) or _first(done.stderr)


def advisories(uv: str) -> tuple[bool, str]:
    """Query the database OSV through `uv audit`; return whether it answered, and its advisories."""
    done = _run(uv, "audit", "--locked", "--preview")
    if done.returncode == 0:
        return True, ""
    if failed := _first(done.stderr):
        return False, failed.removeprefix("error: ")
    return True, done.stdout + done.stderr


def audit(uv: str, offline: bool) -> int:
    """Print the checks and findings; return 1 if there are findings, or a check was impossible."""
    found = list(offline_faults(uv))
    print(f"sources, hashes and licences: {len(found)} faults in {len(lock.LOCK['package']) - len(lock.OWN)} packages")
    print(*found, sep="\n", end="\n" if found else "")
    bad = bool(found)
    for what, check in ("withdrawn versions (the index)", yanked), ("advisories (OSV)", advisories):
        if offline:
            print(f"{what}: not checked, as OFFLINE is set")
            continue
        answered, said = check(uv)
        print(f"{what}: {said or 'none'}" if answered else f"{what}: NOT CHECKED: {said} (OFFLINE=1 does without)")
        bad = bad or not answered or bool(said)
    return 1 if bad else 0


def hooks(uv: str) -> int:
    """Print the newest libraries of connections, and what they lack of `infra.transport.http_hooks`; return 1 then."""
    with TemporaryDirectory() as newest:
        installed = _run(uv, "pip", "install", "--target", newest, "--no-deps", *LIBRARIES)
        checked = _run(sys.executable, "-c", CHECK, PYTHONPATH=newest)
    found = [line for line in installed.stderr.splitlines() if line.startswith((" + ", "error:"))]
    print(*found, checked.stdout or checked.stderr, sep="\n", end="")
    return installed.returncode or checked.returncode


def _run(*command: str, given: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, **environment}
    return subprocess.run(command, cwd=ROOT, input=given, env=env, capture_output=True, text=True, timeout=300)


def _first(text: str) -> str:
    return next((line for line in text.splitlines() if line.startswith("error:")), "")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.supply")
    parser.add_argument("command", choices=["audit", "licences", "hooks"])
    parser.add_argument("--offline", action="store_true", help="do without the index and the database of advisories")
    parser.add_argument("--uv", default=lock.UV)
    options = parser.parse_args()
    if options.command == "audit":
        return audit(options.uv, options.offline)
    if options.command == "hooks":
        return hooks(options.uv)
    page = licences.PAGE.read_text(encoding="utf-8")
    licences.PAGE.write_text(licences.written(page, licences.installed(), lock.purposes(options.uv)), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
