"""Operator commands give the same output and errors through the client as on the database."""

import asyncio
import os
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing
from pathlib import Path

import httpx2
import msgspec
import pytest
import typer
from structlog.testing import capture_logs
from typer.testing import CliRunner

from app.admin.usage_rows import LineRow
from app.http.replies import session_error
from infra.cli import accounts, admin_client, usage
from infra.cli.admin_client import AdminClient
from tests.unit.app.admin.house import KEY, URL, House, Transport, house
from tests.unit.infra.conftest import app_of
from topics.errors import BadRequest, DirectoryDown, EarshotError, NotFound, RequestError, Unauthorized
from topics.ports.administration import Administration, UsageFilter
from topics.ports.ledger import Charge, MeteredService

pytestmark = pytest.mark.slow

__all__ = ["house"]


NAMES = ["a b", "ä/ö", "100%", "a?b#c", "..", ".", "a/../b", "a+b", "+", "key/x", "'&;"]
NAMES += ["x/key", "x/plan", "/key", "/plan", "key"]


async def test_names_with_url_characters_work(house: House) -> None:
    await house.accounts.create_organization("other")
    for name in NAMES:
        await house.client.create_organization(name)
        await house.client.create_project(name, name)
        await house.client.plan(name, 5)
        await house.client.rotate_project_key(name)
        await house.client.rotate_organization_key(name)
        (project,) = await house.client.projects(name)
        assert (project.name, project.free_seconds) == (name, 5)
        assert await house.client.totals(UsageFilter(name, name)) == []
        await house.client.delete_project(name)
        await house.client.delete_organization(name)
        assert [one.name for one in await house.accounts.organizations()] == ["other"]


async def lines(of: Administration, period: UsageFilter) -> list[Charge]:
    return [one async for page in of.lines(period) for one in page]


async def test_project_is_looked_up_in_named_organization(house: House) -> None:
    _, apes = await house.used()
    await house.accounts.create_organization("Farm")
    await house.accounts.create_project("apes", "Farm")
    await house.accounts.create_project("pigs", "Farm")
    for of in house.accounts, house.client:
        assert await of.totals(UsageFilter("Zoo", "apes")) == await of.totals(UsageFilter(project=apes))
        assert await of.totals(UsageFilter("Farm", "apes")) == []
        with pytest.raises(BadRequest, match="several projects 'apes'"):
            await of.totals(UsageFilter(project="apes"))
        with pytest.raises(NotFound, match="no project 'pigs'"):
            await lines(of, UsageFilter("Zoo", "pigs"))


async def test_usage_lines_are_streamed() -> None:
    row = msgspec.json.encode(LineRow.of(Charge("j", MeteredService.SOUND, "p", "o", 1, "\u2028", 0)))
    sent = 0

    async def body() -> AsyncIterator[bytes]:
        nonlocal sent
        yield b"[" + row
        while True:
            sent += 1
            yield b"," + row + b",\n" + row

    transport = httpx2.MockTransport(lambda _: httpx2.Response(200, content=body()))
    async with AdminClient(URL, KEY, transport=transport) as client, aclosing(client.lines(UsageFilter())) as pages:
        for number in range(1, 4):
            page = await anext(pages)
            assert [one.model for one in page] == ["\u2028", "\u2028"]
            assert sent == number


@pytest.mark.parametrize("body", [b"", b"[", b"[{}]", b"<html>]", b'[{"job":"j"},\n', b"[" + b" " * 100])
async def test_malformed_usage_lines_are_reported(monkeypatch: pytest.MonkeyPatch, body: bytes) -> None:
    monkeypatch.setattr(admin_client, "LONGEST_LINE", 99)
    transport = httpx2.MockTransport(lambda _: httpx2.Response(200, content=body))
    async with AdminClient(URL, KEY, transport=transport) as client:
        with pytest.raises(DirectoryDown, match="does not speak"):
            await lines(client, UsageFilter())


def asked(handler: Callable[[httpx2.Request], httpx2.Response]) -> EarshotError:
    """Return the error of a call that `handler` answers."""

    async def story() -> None:
        async with AdminClient(URL, KEY, transport=httpx2.MockTransport(handler)) as client:
            await client.organizations()

    with pytest.raises(EarshotError) as caught:
        asyncio.run(story())
    assert KEY not in repr(caught.value)
    return caught.value


def test_service_failures_are_reported() -> None:
    def answer(status: int, body: bytes) -> Callable[[httpx2.Request], httpx2.Response]:
        return lambda _: httpx2.Response(status, content=body)

    assert "database is away" in str(asked(answer(500, b'{"error": "database is away"}')))
    strange = [(200, body) for body in (b'{"x": 1}', b"<html>", b'["\xe9"]')]
    for status, body in (*strange, (401, b"<html>"), (302, b""), (502, b"Bad Gateway")):
        error = asked(answer(status, body))
        assert isinstance(error, DirectoryDown)
        assert "does not speak" in str(error)
    assert type(asked(answer(413, b'{"error": "long"}'))) is RequestError
    off = asked(answer(404, session_error(404, None).body))
    assert isinstance(off, DirectoryDown)
    assert "EARSHOT_ADMIN_KEY is not set there, or EARSHOT_ADMIN_LISTEN is" in str(off)


def test_timeout_is_reported() -> None:
    def lost(request: httpx2.Request) -> httpx2.Response:
        raise httpx2.ReadTimeout("")

    error = asked(lost)
    assert isinstance(error, DirectoryDown)
    hint = "set --url or EARSHOT_ADMIN_URL to the operator's interface"
    assert str(error) == f"no answer from {URL}: ReadTimeout; {hint}"


@pytest.mark.parametrize(
    "url",
    ["", "elsewhere:8000", "ftp://h", "http://", "http://u:word@h", "http://[::1", "http://h?x", "http://h:99999"],
)
def test_invalid_url_is_rejected(url: str) -> None:
    with pytest.raises(BadRequest) as caught:
        AdminClient(url, KEY)
    assert "word@" not in str(caught.value)


@pytest.mark.parametrize("key", ["", "short", "with\na line break in it", "é" * 20])
def test_malformed_key_is_rejected_but_not_shown(key: str) -> None:
    with pytest.raises(Unauthorized) as caught:
        AdminClient(URL, key)
    assert not key or key not in str(caught.value)


READING = [
    ["org", "list"],
    ["org", "list", "--json"],
    ["project", "list"],
    ["project", "list", "--json", "--org", "Zoo"],
    ["project", "list", "--org", "Farm"],
    ["usage"],
    *(["usage", "--format", form, *lines] for form in ("table", "csv", "json") for lines in ([], ["--lines"])),
    ["usage", "--service", "speech_analysis", "--format", "csv"],
    ["usage", "--month", "2026-10", "--project", "apes", "--organization", "Zoo"],
    ["usage", "--project", "b" * 24, "--format", "csv"],
]
#: In this order, each once locally and once remotely, under other names.
WRITING = [
    ["org", "create", "NAME"],
    ["org", "create", "NAME's other", "--json"],
    ["org", "rotate-key", "NAME", "--yes"],
    ["project", "create", "NAME", "--org", "NAME"],
    ["project", "plan", "NAME", "--free-seconds", "1200", "--json"],
    ["project", "plan", "NAME", "--unlimited"],
    ["key", "rotate", "NAME", "--yes", "--json"],
    ["project", "delete", "NAME", "--yes"],
    ["org", "delete", "NAME", "--yes"],
    ["org", "delete", "NAME", "--yes"],
    ["org", "create", " "],
    ["project", "create", "NAME"],
    ["project", "list", "--org", "NAME"],
    ["project", "delete", "NAME", "--yes"],
    ["key", "rotate", "NAME", "--yes"],
    ["org", "rotate-key", "NAME", "--yes"],
    ["usage", "--project", "NAME"],
]


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch, loop: asyncio.Runner, house: House, tmp_path: Path) -> Iterator[typer.Typer]:
    monkeypatch.delenv("EARSHOT_ADMIN_URL", raising=False)
    monkeypatch.setenv("EARSHOT_ADMIN_KEY", KEY)
    monkeypatch.setenv("EARSHOT_DATA", str(tmp_path))
    monkeypatch.setattr(admin_client, "AdminClient", lambda *to: AdminClient(*to, transport=Transport(tmp_path)))
    made = app_of(accounts, usage)
    loop.run(house.used())
    with capture_logs():  # of the remote service, which runs in this process
        yield made


def ran(app: typer.Typer, *arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, arguments)
    return result.exit_code, result.stdout, str(result.exception)


def test_read_commands_print_same_with_url(app: typer.Typer) -> None:
    ran(app, "org", "create", "Farm")
    for arguments in READING:
        here = ran(app, *arguments)
        assert here[0] == 0
        assert here[1] or "Farm" in arguments
        assert ran(app, *arguments, "--url", URL) == here


def test_write_commands_print_same_with_url(app: typer.Typer) -> None:
    def told(name: str, *to: str) -> list[tuple[object, ...]]:
        runs = [ran(app, *(word.replace("NAME", name) for word in words), *to) for words in WRITING]
        assert [code for code, _, _ in runs] == [0] * 9 + [1] * 8
        return [tuple(re.sub(r"es[op]_\w+|\w{24}|\S+\+00:00|…\w{4}", "*", str(part)) for part in run) for run in runs]

    assert told("here") == [
        tuple(str(part).replace("away", "here") for part in run) for run in told("away", "--url", URL)
    ]


def test_environment_selects_admin_url(app: typer.Typer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EARSHOT_ADMIN_URL", URL)
    monkeypatch.setenv("EARSHOT_DATABASE_URL", "postgresql://u:p@127.0.0.1:9/none")
    assert "Zoo" in ran(app, "org", "list")[1]
    code, _, said = ran(app, "org", "list", "--url", "")
    assert (code, "database does not answer" in said) == (1, True)


@pytest.mark.parametrize(("key", "why"), [("", "no admin key"), (KEY + "!", "invalid admin key")])
def test_missing_or_wrong_admin_key_is_reported(
    app: typer.Typer, monkeypatch: pytest.MonkeyPatch, key: str, why: str
) -> None:
    monkeypatch.setenv("EARSHOT_ADMIN_KEY", key)
    code, out, said = ran(app, "org", "list", "--url", URL)
    assert (code, out) == (1, "")
    assert why in said


@pytest.mark.parametrize("to", [[], ["--url", URL]])
def test_name_that_is_not_utf8_is_rejected(app: typer.Typer, to: list[str]) -> None:
    name = os.fsdecode(b"Zoo\xff")
    for words in ("org create", "org delete --yes", "project list --org", "usage --project"):
        result = CliRunner().invoke(app, [*words.split(), name, *to])
        assert isinstance(result.exception, BadRequest | NotFound), words


def test_recount_rejects_url(app: typer.Typer) -> None:
    result = CliRunner().invoke(app, ["usage", "--recount", "--url", URL])
    assert result.exit_code == 2
    assert "no --url" in result.stderr


@pytest.mark.parametrize("to", [[], ["--url", URL]])
@pytest.mark.parametrize("answer", ["n\n", ""])
def test_what_cannot_be_undone_needs_confirmation(app: typer.Typer, answer: str, to: list[str]) -> None:
    before = ran(app, "project", "list"), ran(app, "org", "list")
    for words in ("key rotate apes", "org rotate-key Zoo", "project delete apes", "org delete Zoo"):
        refused = CliRunner().invoke(app, [*words.split(), *to], input=answer)
        assert refused.exit_code == 1
        assert "[y/N]" in refused.stderr
        assert isinstance(refused.exception, BadRequest)
        assert "give --yes" in str(refused.exception)
    assert (ran(app, "project", "list"), ran(app, "org", "list")) == before
