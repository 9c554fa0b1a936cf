"""The rules of the packages: each documents its purpose, and has a place in the checked order of imports."""

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
ROOTS = ("app", "streams", "topics", "infra", "benchmarks")


def rooms() -> Iterator[Path]:
    """Yield the roots and the packages directly in them."""
    for root in ROOTS:
        yield ROOT / root
        if root in ("app", "streams", "infra"):
            yield from sorted(path.parent for path in (ROOT / root).glob("*/__init__.py"))


def contracts(kind: str) -> list[dict[str, Any]]:
    """Return import-linter's contracts of a kind."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return [contract for contract in settings["tool"]["importlinter"]["contracts"] if contract["type"] == kind]


def floors() -> set[str]:
    """Return the full names of the packages in an order of layers."""
    return {
        f"{container}.{name}".lstrip(".")
        for contract in contracts("layers")
        for container in contract.get("containers", [""])
        for layer in contract["layers"]
        for name in layer.replace("|", " ").split()
    }


@pytest.mark.parametrize("room", [pytest.param(path, id=str(path.relative_to(ROOT))) for path in rooms()])
def test_every_package_has_readme(room: Path) -> None:
    lines = (room / "README.md").read_text(encoding="utf-8").splitlines()
    assert lines[0].startswith("# ")
    assert len([line for line in lines if line.strip()]) >= 4


@pytest.mark.parametrize("root", ["app", "streams", "infra"])
def test_every_package_has_import_layer(root: str) -> None:
    names = {f"{root}.{path.name}" for path in rooms() if path.parent == ROOT / root}
    assert names <= floors()


def test_import_cycles_are_forbidden_in_every_root() -> None:
    covered = {root for contract in contracts("acyclic_siblings") for root in contract["ancestors"]}
    assert covered == {"app", "streams", "topics", "infra"}
