"""`earshot nodes`: what is bad stands under the table, and in the exit status."""

from __future__ import annotations

import msgspec
import pytest
from typer.testing import CliRunner

from app.admin.description import NODE, NODES
from app.admin.wire import NodeReport, NodesReport
from infra.cli import build
from infra.cli import nodes as module
from topics.errors import Unauthorized

WELL = NodesReport("good", 1, [], [NodeReport(NODE.url, "good", [], NODE)])


def asked(monkeypatch: pytest.MonkeyPatch, report: NodesReport, *arguments: str) -> tuple[int, str]:
    urls: list[str] = []

    async def ask(url: str) -> NodesReport:
        urls.append(url)
        return report

    monkeypatch.setattr(module, "_ask", ask)
    done = CliRunner().invoke(build(), ["nodes", "--url", "http://barn:8000", *arguments])
    assert urls == ["http://barn:8000"]
    return done.exit_code, done.stdout


def test_what_is_well_is_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    status, printed = asked(monkeypatch, WELL)
    assert (status, len(printed.splitlines())) == (0, 2)
    assert "yamnet@e1f174ba-71e54a" in printed


def test_what_is_bad_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    status, printed = asked(monkeypatch, msgspec.structs.replace(NODES, missing=[3, 4]))
    assert status == 1
    _, _, silent, *found = printed.splitlines()
    assert silent.split()[:3] == ["http://shed:8000", "bad", "-"]
    assert found[0] == "bad: no node serves partition 3, 4"
    assert found[-1] == "bad: http://shed:8000: it does not answer"


def test_programs_get_json(monkeypatch: pytest.MonkeyPatch) -> None:
    status, printed = asked(monkeypatch, NODES, "--json")
    assert status == 1
    assert msgspec.json.decode(printed, type=NodesReport) == NODES


def test_it_needs_the_operators_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EARSHOT_ADMIN_KEY", raising=False)
    done = CliRunner().invoke(build(), ["nodes", "--url", "http://127.0.0.1:1"])
    assert isinstance(done.exception, Unauthorized)
