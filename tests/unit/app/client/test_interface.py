"""Every public name of the package exists and is documented, and calls that wait have a timeout."""

import ast
import builtins
import inspect
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import earshot_client as package
from earshot_client import AsyncClient, Client

CLASSES = [value for name in package.__all__ if isinstance(value := getattr(package, name), type)]
#: Methods that send nothing.
AT_ONCE = {"close"}


def methods(cls: type) -> dict[str, Callable[..., Any]]:
    members = {name: value for one in reversed(cls.__mro__) for name, value in vars(one).items()}
    return {name: value for name, value in members.items() if inspect.isfunction(value) and name[0] != "_"}


def errors(docstring: str) -> list[str]:
    """Return the names under `Raises:` in a docstring."""
    _, _, section = docstring.partition("\nRaises:\n")
    lines = [line for line in section.partition("\n\n")[0].splitlines() if re.match(r"    \w", line)]
    return [name for line in lines for name in re.split(r", ", re.sub(r"(: .*|\.)$", "", line.strip()))]


@pytest.mark.parametrize(
    "method",
    [one for cls in (Client, AsyncClient) for name, one in methods(cls).items() if name not in AT_ONCE],
    ids=lambda method: method.__qualname__,
)
def test_waiting_methods_have_timeout_and_document_errors(method: Callable[..., Any]) -> None:
    timeout = inspect.signature(method).parameters["timeout"]
    assert (timeout.kind, timeout.default) == (inspect.Parameter.KEYWORD_ONLY, None)
    docstring = inspect.getdoc(method) or ""
    assert re.search(r"^    timeout: seconds ", docstring, re.MULTILINE)
    names = errors(docstring)
    assert {"DeadlineExceeded", "ServiceUnreachable", "RequestRefused"} <= set(names)
    assert [name for name in names if name not in package.__all__ and not hasattr(builtins, name)] == []


@pytest.mark.parametrize("cls", CLASSES)
def test_public_members_have_docstrings(cls: type) -> None:
    names = [name for name in vars(cls) if name[0] != "_"]
    members = {name: value for name in names if callable(value := vars(cls)[name]) or isinstance(value, property)}
    unexplained = [name for name, value in members.items() if not inspect.getdoc(value)]
    assert unexplained == []
    # msgspec writes no docstring of its own, unlike a dataclass.
    assert cls.__doc__
    assert not cls.__doc__.startswith(f"{cls.__name__}(")


@pytest.mark.parametrize("cls", CLASSES)
def test_documented_attributes_exist(cls: type) -> None:
    _, _, section = (inspect.getdoc(cls) or "").partition("\nAttributes:\n")
    attributes = re.findall(r"^    (\w+): ", section, re.MULTILINE)
    fields = getattr(cls, "__struct_fields__", attributes)
    assert [name for name in attributes if name not in fields] == []


@pytest.mark.parametrize("file", sorted(Path(package.__path__[0]).glob("*.py")), ids=lambda file: file.name)
def test_modules_import_only_declared_dependencies(file: Path) -> None:
    nodes = list(ast.walk(ast.parse(file.read_text())))
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom) and node.level == 0}
    allowed = {"anyio", "httpx2", "msgspec", "websockets", *sys.stdlib_module_names}
    assert {name.partition(".")[0] for name in names} <= allowed
    assert {node.level for node in nodes if isinstance(node, ast.ImportFrom)} <= {0, 1}


def test_both_clients_have_same_interface() -> None:
    blocking, on_loop = methods(Client), methods(AsyncClient)
    assert list(blocking) == list(on_loop)
    for name, method in blocking.items():
        other = on_loop[name]
        assert inspect.getdoc(method) == inspect.getdoc(other), name
        assert inspect.signature(method).parameters == inspect.signature(other).parameters, name
    for cls in (Client, AsyncClient):
        assert errors(inspect.getdoc(cls.__init__) or "") == ["WrongKey"]
