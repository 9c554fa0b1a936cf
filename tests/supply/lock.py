"""The lock file: every package that any installation can have, and what requires it."""

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from tests.conftest import ROOT

LOCK: Final = ROOT / "uv.lock"
INDEX: Final = "https://pypi.org/simple"
FILES: Final = "https://files.pythonhosted.org/"
SERVER: Final = "earshot-server"
#: The distributions of this tree.
OWN: Final = frozenset({SERVER, "earshot-client", "earshot-lab"})
_SHA256: Final = re.compile(r"sha256:[0-9a-f]{64}")

Package = Mapping[str, Any]


def packages() -> list[Package]:
    """Return the locked packages, including ours."""
    locked: list[Package] = tomllib.loads(LOCK.read_text(encoding="utf-8"))["package"]
    return locked


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


def purposes(locked: Iterable[Package]) -> dict[str, str]:
    """Return the first thing that needs each package: `service`, an extra's name, or `development`."""
    by_name: dict[str, list[Package]] = {}
    for package in locked:
        by_name.setdefault(package["name"], []).append(package)
    (own,) = by_name[SERVER]
    groups = {"service": own["dependencies"], **own.get("optional-dependencies", {})}
    groups["development"] = own.get("dev-dependencies", {}).get("dev", [])
    found: dict[str, str] = {}
    for purpose, wanted in groups.items():
        todo = [(one["name"], tuple(one.get("extra", ()))) for one in wanted]
        seen = set()
        while todo:
            name, extras = todo.pop()
            if (name, extras) in seen:
                continue
            seen.add((name, extras))
            found.setdefault(name, purpose)
            for package in by_name[name]:
                needs = [*package.get("dependencies", ())]
                for extra in extras:
                    needs += package.get("optional-dependencies", {}).get(extra, ())
                todo += [(one["name"], tuple(one.get("extra", ()))) for one in needs]
    return {name: purpose for name, purpose in found.items() if name not in OWN}
