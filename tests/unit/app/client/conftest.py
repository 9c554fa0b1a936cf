"""Both clients, the command line, and the servers that they ask."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from earshot_client import AsyncClient, Client
from infra import cli
from tests.cutter import Cutter, proxied
from tests.unit.app.client.edge import WAV, Edge
from tests.unit.app.conftest import KEY, ORG_KEY, House, behind_a_server
from tests.unit.app.sessions.sockets import place

Shell = Callable[..., Client]
Command = Callable[..., tuple[int, list[str], str]]


async def no_pause(seconds: float) -> None: ...


class OnALoop:
    """Wraps the asyncio client in the blocking client's interface."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._loop = asyncio.Runner()
        self._client = AsyncClient(*arguments, **options)

    def __enter__(self) -> OnALoop:
        return self

    def __exit__(self, *error: object) -> None:
        self._loop.run(self._client.close())
        self._loop.close()

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            made = getattr(self._client, name)(*arguments, **options)
            return self._iterated(made) if isinstance(made, AsyncIterator) else self._loop.run(made)

        return call

    def _iterated(self, made: AsyncIterator[Any]) -> Iterator[Any]:
        async def following() -> Any:
            return await anext(made, self)

        while (one := self._loop.run(following())) is not self:
            yield one


@pytest.fixture(params=[Client, OnALoop], ids=["blocking", "asyncio"])
def unhurried(request: pytest.FixtureRequest) -> Shell:
    made: Shell = request.param
    return made


@pytest.fixture
def shell(unhurried: Shell) -> Shell:
    """Either client, without pauses between retries."""
    pause: Callable[[float], Any] = (lambda seconds: None) if unhurried == Client else no_pause
    return partial(unhurried, sleep=pause)


@pytest.fixture(scope="session")
def _edge() -> Iterator[Edge]:
    edge = Edge()
    with behind_a_server(edge) as edge.url:
        yield edge


@pytest.fixture
def edge(_edge: Edge, house: House) -> Iterator[Edge]:
    _edge.serve(house)
    with capture_logs():  # Commands print beside them.
        yield _edge
    _edge.serve(house)


@pytest.fixture
def url(edge: Edge) -> str:
    return edge.url


@pytest.fixture
def either(url: str, shell: Shell) -> Iterator[Client]:
    """Either client with both keys."""
    with shell(url, KEY, org_key=ORG_KEY) as client:
        yield client


@pytest.fixture
def cutter(house: House) -> Iterator[Cutter]:
    """A proxy to an edge served by the service's own connections."""
    with proxied(place(house)) as cutter:
        yield cutter


@pytest.fixture
def earshot(capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs the command line with variables, named without EARSHOT_; returns exit status, stdout's lines, stderr."""

    def run(*arguments: object, **variables: str) -> tuple[int, list[str], str]:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in variables.items():
                patch.setenv(f"EARSHOT_{name.upper()}", value)
            patch.setattr(sys, "argv", ["earshot", *map(str, arguments)])
            with pytest.raises(SystemExit) as ended:
                cli.main()
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), out.splitlines(), err

    return run


@pytest.fixture
def wav(tmp_path: Path) -> Path:
    """A recording with a non-ASCII name."""
    path = tmp_path / "hörbar.wav"
    path.write_bytes(WAV)
    return path
