"""Each package documents its purpose."""

from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOTS = ("app", "streams", "topics", "infra", "benchmarks")


def rooms() -> Iterator[Path]:
    """Yield the roots and the packages directly in them."""
    for root in ROOTS:
        yield ROOT / root
        if root in ("app", "streams", "infra"):
            yield from sorted(path.parent for path in (ROOT / root).glob("*/__init__.py"))


@pytest.mark.parametrize("room", [pytest.param(path, id=str(path.relative_to(ROOT))) for path in rooms()])
def test_every_package_has_readme(room: Path) -> None:
    lines = (room / "README.md").read_text(encoding="utf-8").splitlines()
    assert lines[0].startswith("# ")
    assert len([line for line in lines if line.strip()]) >= 4
