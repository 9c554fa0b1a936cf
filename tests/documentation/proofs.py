"""Tables that name tests: each row of a column `test` names some, and each numbered promise of the page has a row."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.documentation.pages import Page

#: A test by its file and function.
TEST: Final = re.compile(r"(tests/[\w/]+\.py)::(\w+)")
_PROMISE: Final = re.compile(r"(\d+)\. ")


def fault_of_test(path: str, function: str, root: Path) -> str | None:
    """Return the fault of a test that a page names."""
    file = root / path
    if not file.exists():
        return f"there is no {path}"
    there = re.search(rf"(?m)^(?:async )?def {function}\(", file.read_text(encoding="utf-8"))
    return None if there and function.startswith("test_") else f"{path} has no test {function}"


def proof_faults(page: Page) -> Iterator[tuple[int, str]]:
    """Yield rows without a test, and promises without a row, with their lines."""
    columns: list[str] = []
    proved: set[str] | None = None
    lines = page.text.splitlines()
    for number, line in enumerate(lines, start=1):
        if not line.startswith("| "):
            columns = []
            continue
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not columns:
            columns = cells
            if "promise" in columns:
                proved = proved or set()
        elif "test" in columns and not line.startswith("| --- "):
            row = dict(zip(columns, cells, strict=False))
            if not TEST.search(row.get("test", "")):
                yield number, "this row names no test"
            elif proved is not None:
                proved.update(row.get("promise", "").split(", "))
    for number, line in enumerate(lines, start=1):
        if proved is not None and (promise := _PROMISE.match(line)) and promise[1] not in proved:
            yield number, f"promise {promise[1]} has no test"
