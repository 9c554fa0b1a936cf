"""Licences of the installed packages, as listed in docs/licences.md."""

import re
from collections.abc import Iterator, Mapping
from importlib.metadata import Distribution, distributions
from typing import Final

from tests.conftest import ROOT
from tests.supply.lock import OWN

PAGE: Final = ROOT / "docs" / "licences.md"
BEGIN: Final = "<!-- licences -->\n"
END: Final = "<!-- /licences -->"
#: Metadata terms in SPDX, without the word "License". "BSD" alone does not tell which one it is.
_SPDX: Final = {
    "3-Clause BSD": "BSD-3-Clause",
    "Apache 2": "Apache-2.0",
    "Apache 2.0": "Apache-2.0",
    "Apache Software": "Apache-2.0",
    "Apache, Version 2.0": "Apache-2.0",
    "BSD 2-Clause": "BSD-2-Clause",
    "BSD 3-Clause": "BSD-3-Clause",
    "BSD-derived (Repoze)": "LicenseRef-Repoze",
    "Mozilla Public 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation": "PSF-2.0",
}
#: Packages whose metadata names no exact licence; their licence files do.
_BY_FILE: Final = {
    # With axe-core, which is MPL-2.0.
    "axe-playwright-python": "MIT AND MPL-2.0",
    # BSD-3-Clause or EPL-2.0, as we choose.
    "paho-mqtt": "BSD-3-Clause",
    "pyannote-core": "MIT",
    "pyannote-database": "MIT",
    "pyannote-metrics": "MIT",
    "python-dateutil": "Apache-2.0 OR BSD-3-Clause",
}
#: Licences compatible with installing a self-hosted service under Apache-2.0. Weak copyleft (MPL-2.0) is used as
#: published, unchanged.
ALLOWED: Final = frozenset(
    {
        "0BSD", "Apache-2.0", "BSD", "BSD-2-Clause", "BSD-3-Clause", "CC0-1.0", "ISC", "LLVM-exception",
        "LicenseRef-Repoze", "MIT", "MIT-0", "MIT-CMU", "MPL-2.0", "PSF-2.0", "Zlib",
    }
)  # fmt: skip
_WORDS: Final = re.compile(r"[\w.+-]+")


def normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def installed() -> dict[str, str]:
    """Return the licence of every installed third-party package, by name."""
    found = {normalized(one.name): licence(one) for one in distributions()}
    return dict(sorted((name, text) for name, text in found.items() if name not in OWN))


def licence(package: Distribution) -> str:
    """Return a package's licence as an SPDX expression; "" if its metadata does not identify one."""
    about = package.metadata.json
    if known := _BY_FILE.get(normalized(package.name)):
        return known
    if expression := about.get("license_expression"):
        return str(expression)
    names = [str(about.get("license") or "")]
    if not names[0] or "\n" in names[0] or len(names[0]) >= 60:
        classifiers = [str(name) for name in about.get("classifier") or ()]
        names = [name.rpartition(" :: ")[2] for name in classifiers if name.startswith("License :: OSI")]
    plain = [re.sub(r" [Ll]icense", "", name) for name in names]
    return " OR ".join(_SPDX.get(name, name) for name in plain)


def faults(licences: Mapping[str, str]) -> Iterator[str]:
    """Yield a line for each package whose licence is unknown or not allowed."""
    for name, expression in licences.items():
        words = set(_WORDS.findall(expression)) - {"AND", "OR", "WITH"}
        if not words:
            yield f"{name}: says nothing of its licence"
        elif strange := sorted(words - ALLOWED):
            yield f"{name}: {expression}: {', '.join(strange)} is not allowed yet (tests/supply/licences.py)"


def rows(page: str) -> dict[str, tuple[str, str]]:
    """Return the rows of the page: licence and purpose by name."""
    _, _, rest = page.partition(BEGIN)
    lines = rest.partition(END)[0].splitlines()[2:]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {name: (expression, purpose) for name, expression, purpose in cells}


def differences(page: str, licences: Mapping[str, str], purposes: Mapping[str, str]) -> Iterator[str]:
    """Yield differences between the page and the packages installed and locked here.

    Other systems and Python versions install other packages, so rows of locked packages that are not installed stay.
    """
    listed = rows(page)
    for name, expression in licences.items():
        row = (expression, purposes.get(name, ""))
        if name in purposes and listed.get(name) != row:
            yield f"docs/licences.md: {name} is {listed.get(name, 'not listed')}, it should be {row}"
    for name in listed:
        if name not in purposes:
            yield f"docs/licences.md: {name} is not in uv.lock any more"


def written(page: str, licences: Mapping[str, str], purposes: Mapping[str, str]) -> str:
    """Return the page with a table of the installed packages, and of listed ones that are still locked."""
    table = {name: row for name, row in rows(page).items() if name in purposes}
    table |= {name: (expression, purposes[name]) for name, expression in licences.items() if name in purposes}
    lines = ["| package | licence | comes with |", "| --- | --- | --- |"]
    lines += [f"| {name} | {expression} | {purpose} |" for name, (expression, purpose) in sorted(table.items())]
    before, _, rest = page.partition(BEGIN)
    return before + BEGIN + "\n".join(lines) + "\n" + END + rest.partition(END)[2]
