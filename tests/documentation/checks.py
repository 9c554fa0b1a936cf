"""Checks pages for broken links and paths, and for unknown commands, settings and tests."""

import ast
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

import earshot_client
from infra.settings import typing_errors
from tests.documentation import commands
from tests.documentation.pages import Block, Page, read
from tests.documentation.proofs import TEST, fault_of_test, proof_faults

#: A path below one of the project's directories; a trailing `/` requires a directory, `*` matches any file.
_PATH: Final = re.compile(r"(?:app|benchmarks|docs|infra|streams|tests|topics)/[\w./*@-]*")
_VARIABLE: Final = re.compile(r"\bEARSHOT_[A-Z0-9_]*[A-Z0-9]\b")
#: A key variable used as an argument.
_KEY: Final = re.compile(r"\$\{?EARSHOT_\w*KEY\b")
#: Allowed languages of a block. Each block must name one, because otherwise it would not be checked.
LANGUAGES: Final = frozenset({"sh", "python", "json", "text", "ini", "nginx", "caddy"})
#: History, whose names and paths may be gone.
HISTORY: Final = ("CHANGELOG.md", "docs/decisions/")


def faults(page: Page, root: Path) -> Iterator[str]:
    """Yield a line for each fault of a page; `root` is the directory of the project."""
    name = page.path.relative_to(root).as_posix()
    for line, fault in _all(page, root, history=name.startswith(HISTORY)):
        yield f"{name}:{line}: {fault}"


def _all(page: Page, root: Path, history: bool) -> Iterator[tuple[int, str]]:
    for span in page.targets():
        if fault := _link_fault(page, span.text, root):
            yield span.line, fault
    if history:
        return
    yield from proof_faults(page)
    for span in page.code():
        if fault := _code_fault(span.text, root):
            yield span.line, fault
    for block in page.blocks():
        for fault in _block_faults(block, root):
            yield block.line, fault
    for number, text in enumerate(page.text.splitlines(), start=1):
        for fault in typing_errors(_VARIABLE.findall(text)):
            yield number, fault


def _link_fault(page: Page, target: str, root: Path) -> str | None:
    parts = urlsplit(target)
    if parts.scheme:
        return None
    path = (page.path.parent / unquote(parts.path)).resolve()
    if not path.is_relative_to(root):
        return f"the link {target} leads out of the project"
    if not path.exists():
        return f"the link {target} leads nowhere"
    if parts.fragment:
        there = page if not parts.path else read(path) if path.suffix == ".md" else None
        if there is None or parts.fragment not in there.anchors():
            return f"the link {target} names no heading there"
    return None


def _code_fault(text: str, root: Path) -> str | None:
    """Return the fault of inline code, which may omit the arguments of a command."""
    words = text.split()
    if words[:1] == ["earshot"] and "..." not in text:
        return commands.earshot_fault([*words[1:], "--help"])
    if words[:1] == ["make"]:
        return commands.fault(shlex.split(text), _makefile(root))
    if words[:2] == ["python", "-m"]:
        return commands.fault(words, "")
    if test := TEST.fullmatch(text):
        return fault_of_test(test[1], test[2], root)
    return _path_fault(text, root) if _PATH.fullmatch(text) else None


def _block_faults(block: Block, root: Path) -> Iterator[str]:
    if block.language not in LANGUAGES:
        yield f"a block of language {block.language!r}: expected one of {', '.join(sorted(LANGUAGES))}"
    elif block.language == "sh":
        yield from _shell_faults(block.text, root)
    elif block.language == "python":
        yield from _python_faults(block.text)
    elif block.language == "json":
        try:
            json.loads(block.text)
        except ValueError as error:
            yield f"no JSON: {error}"


def _shell_faults(script: str, root: Path) -> Iterator[str]:
    try:
        for command in commands.commands(script):
            if fault := commands.fault(command, _makefile(root)):
                yield f"{' '.join(command)}: {fault}"
            if "curl" in command and any(map(_KEY.search, command)):
                yield f"{' '.join(command)}: shows a key to everybody who lists processes"
            if command[0] == "pip":
                yield f"{' '.join(command)}: may be the pip of the system, name the one of an environment"
            paths = [word.rpartition("@")[2] for word in command]
            yield from filter(None, (_path_fault(path, root) for path in paths if _PATH.fullmatch(path)))
    except ValueError as error:
        yield f"no shell code: {error}"


def _python_faults(program: str) -> Iterator[str]:
    try:
        tree = ast.parse(program)
    except SyntaxError as error:
        yield f"no Python: {error}"
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "earshot_client":
            for alias in node.names:
                if alias.name not in earshot_client.__all__:
                    yield f"{node.module} has no {alias.name}"


def _path_fault(path: str, root: Path) -> str | None:
    there = any(root.glob(path)) if "*" in path else (root / path).exists()
    return None if there and not (path.endswith("/") and not (root / path).is_dir()) else f"there is no {path}"


def _makefile(root: Path) -> str:
    return (root / "Makefile").read_text(encoding="utf-8")
