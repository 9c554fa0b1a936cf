"""Every class of `streams` documents which threads may call it."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[3]
SAID: Final = re.compile(r"\b(loop only|any thread|one thread at a time)\b", re.IGNORECASE)
#: Values, or descriptions of values, have no thread.
VALUES: Final = {"BaseException", "Enum", "Exception", "NamedTuple", "Protocol", "StrEnum", "Struct", "Structure"}


def classes(room: str) -> Iterator[tuple[Path, ast.ClassDef]]:
    for path in sorted((ROOT / room).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                yield path.relative_to(ROOT), node


def base_names(node: ast.ClassDef) -> set[str]:
    """Return the last parts of the names of its bases, without type parameters."""
    return {ast.unparse(base).partition("[")[0].rpartition(".")[2] for base in node.bases}


def test_each_class_documents_its_thread_safety() -> None:
    bases, streams = defaultdict[str, set[str]](set), list(classes("streams"))
    for _, node in (*classes("topics"), *streams):
        bases[node.name] |= base_names(node)

    def is_value(name: str) -> bool:
        return name in VALUES or any(map(is_value, bases.get(name, ())))

    silent = [
        f"{path}:{node.lineno} {node.name}"
        for path, node in streams
        if not is_value(node.name) and not SAID.search(ast.get_docstring(node) or "")
    ]
    assert silent == []
