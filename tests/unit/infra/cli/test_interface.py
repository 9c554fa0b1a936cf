"""`earshot interface`: the documents without a service."""

from __future__ import annotations

import json
from typing import Final

import pytest
import typer
from typer.testing import CliRunner

from infra.cli import interface

APP: Final = typer.Typer()
interface.register(APP)


@pytest.mark.parametrize(
    ("arguments", "member"),
    [
        ([], ("openapi", "3.1.0")),
        (["openapi", "--version", "3.0"], ("openapi", "3.0.3")),
        (["sessions"], ("openapi", "3.1.0")),
        (["asyncapi"], ("asyncapi", "3.0.0")),
    ],
)
def test_a_document_is_printed(arguments: list[str], member: tuple[str, str]) -> None:
    printed = CliRunner().invoke(APP, arguments, catch_exceptions=False)
    assert printed.exit_code == 0
    assert member in json.loads(printed.stdout).items()


def test_the_page_is_printed() -> None:
    assert "## Audio sessions" in CliRunner().invoke(APP, ["markdown"], catch_exceptions=False).stdout


@pytest.mark.parametrize("arguments", [["swagger"], ["openapi", "--version", "2.0"]])
def test_what_is_not_there(arguments: list[str]) -> None:
    assert CliRunner().invoke(APP, arguments).exit_code == 2
