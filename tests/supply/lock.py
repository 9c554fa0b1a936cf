"""The lock file: every package that any installation can have, and what requires it."""

import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from tests.conftest import ROOT

UV: Final = shutil.which("uv") or str(ROOT / ".uv" / "bin" / "uv")
LOCK: Final = tomllib.loads((ROOT / "uv.lock").read_text(encoding="utf-8"))
INDEX: Final = "https://pypi.org/simple"
FILES: Final = "https://files.pythonhosted.org/"
#: The distributions of this tree.
OWN: Final = frozenset({"earshot-server", "earshot-client", "earshot-lab"})
_SHA256: Final = re.compile(r"sha256:[0-9a-f]{64}")

Package = Mapping[str, Any]


def faults(locked: Iterable[Package]) -> Iterator[str]:
    """Yield a line for each package that could be replaced by another one, or differs between versions of Python."""
    seen = set()
    for package in locked:
        if (name := package["name"]) in OWN:
            continue
        if name in seen:
            yield f"{name}: has several versions, so not every Python runs what was tested"
        seen.add(name)
        if package["source"] != {"registry": INDEX}:
            yield f"{name}: comes from {package['source']}, not from {INDEX}"
        files = [*package.get("wheels", ()), *([package["sdist"]] if "sdist" in package else ())]
        if not files:
            yield f"{name}: has no files"
        for file in files:
            if not file["url"].startswith(FILES) or not _SHA256.fullmatch(file.get("hash", "")):
                yield f"{name}: {file['url']} is elsewhere, or has no SHA-256"


def purposes(uv: str) -> dict[str, str]:
    """Return the first thing that needs each package: `service`, an extra's name, or `development`."""
    (own,) = (package for package in LOCK["package"] if package["name"] == "earshot-server")
    choices = {"service": ("--no-dev",)} | {
        name: ("--no-dev", "--extra", name) for name in own["optional-dependencies"]
    }
    found: dict[str, str] = {}
    for purpose, options in {**choices, "development": ()}.items():
        command = [uv, "export", "-q", "--locked", "--offline", "--no-hashes", "--no-annotate", "--no-emit-workspace"]
        listed = subprocess.run([*command, *options], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        for name in re.findall(r"(?m)^[\w.-]+(?===)", listed):
            found.setdefault(name, purpose)
    return found
