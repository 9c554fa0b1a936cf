"""Files of a folder: each is sent once, when it rests, by any agent."""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import BinaryIO, cast

import pytest
from structlog.testing import capture_logs

from earshot_client import AsyncClient, RequestRefused, ServiceUnreachable, Session, SessionOptions
from infra.agent import feed, folder
from infra.agent.folder import Folder
from infra.agent.sources import Source
from infra.errors import Unfit
from tests.waiting import until


class Service:
    """A service in memory, for `Folder`."""

    def __init__(self) -> None:
        self.options: dict[str, SessionOptions] = {}
        self.bytes: dict[str, bytes] = {}
        self.sealed: list[str] = []
        self.cut: Exception | None = None
        self.refusal: Exception | None = None
        self._numbers = itertools.count()

    async def create_session(self, options: SessionOptions) -> Session:
        if self.refusal is not None:
            raise self.refusal
        session = Session(f"s{next(self._numbers)}")
        self.options[session.id], self.bytes[session.id] = options, b""
        return session

    async def put_chunk(self, session: str, number: int, data: bytes) -> int:
        self.bytes[session] += data
        if self.cut is not None:
            raise self.cut
        return number + 1

    async def seal_session(self, session: str) -> None:
        self.sealed.append(session)

    async def delete_session(self, session: str) -> None:
        del self.options[session], self.bytes[session]

    def files(self) -> dict[str, bytes]:
        return {self.options[one].metadata["file"]: data for one, data in self.bytes.items()}


@pytest.fixture(autouse=True)
def _short_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder, "LOOK_SECONDS", 0.02)
    monkeypatch.setattr(feed, "FIRST_PAUSE", 0.02)


def rested(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    os.utime(path, (time.time() - 60,) * 2)


def run(tmp_path: Path, service: Service, play: Callable[[Path], Awaitable[None]]) -> None:
    files = tmp_path / "files"
    files.mkdir(exist_ok=True)
    source = Source("recorder", folder=str(files), labels={"site": "farm"})

    async def scenario() -> None:
        sending = asyncio.create_task(Folder(source, cast(AsyncClient, service), tmp_path / "state").run())
        await play(files)
        await asyncio.sleep(0.1)
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)

    asyncio.run(scenario())


def test_each_file_is_sent_once_by_all_agents(tmp_path: Path) -> None:
    service = Service()

    async def play(files: Path) -> None:
        rested(files / "b.wav", b"x" * 3_000_000)
        rested(files / "a.ogg", b"y")
        rested(files / ".hidden", b"z")
        rested(tmp_path / "elsewhere.wav", b"what the agent alone may read")
        if not (files / "link.wav").is_symlink():
            (files / "link.wav").symlink_to(tmp_path / "elsewhere.wav")
        (files / "empty").touch()
        (files / "folder").mkdir(exist_ok=True)
        (files / "fresh.wav").write_bytes(b"still being written")
        os.utime(files / "fresh.wav", (time.time() + 60,) * 2)  # However long this test takes.
        await until(lambda: service.files() == {"a.ogg": b"y", "b.wav": b"x" * 3_000_000})

    run(tmp_path, service, play)
    assert len(service.bytes) == 2
    options = next(iter(service.options.values()))
    assert (options.kind, options.file_name, options.metadata["site"]) == ("file", "recorder", "farm")
    assert options.total_size in (1, 3_000_000)
    (tmp_path / "files" / "fresh.wav").unlink()

    async def again(files: Path) -> None:
        os.utime(files / "a.ogg", (time.time() - 30,) * 2)  # It is another file now.
        await until(lambda: len(service.bytes) == 3)

    run(tmp_path, service, again)
    assert len(service.bytes) == 3


def test_file_that_was_cut_is_sent_again_whole(tmp_path: Path) -> None:
    service = Service()
    service.cut = ServiceUnreachable("no answer")

    async def play(files: Path) -> None:
        rested(files / "a.wav", b"abc")
        await until(lambda: lines)

    with capture_logs() as lines:
        run(tmp_path, service, play)
    assert {line["reason"] for line in lines} == {"no answer"}
    service.cut = None

    async def again(files: Path) -> None:
        await until(lambda: [line for line in told if line["event"] == "file sent"])

    with capture_logs() as told:
        run(tmp_path, service, again)
    assert (service.files(), len(service.bytes)) == ({"a.wav": b"abc"}, 1)


def test_file_that_a_proxy_refuses_is_sent_later(tmp_path: Path) -> None:
    service = Service()
    service.refusal = RequestRefused(413, "a proxy answered 413", foreign=True)

    async def play(files: Path) -> None:
        rested(files / "a.wav", b"abc")
        await asyncio.sleep(0.3)
        service.refusal = None
        await until(lambda: service.bytes)

    with capture_logs() as lines:
        run(tmp_path, service, play)
    assert [(line["event"], line.get("reason")) for line in lines] == [
        ("folder not sent", "a proxy answered 413"),
        ("file sent", None),
    ]


def test_file_that_the_service_never_takes_holds_no_other(tmp_path: Path) -> None:
    service = Service()
    service.refusal = RequestRefused(413, "the file is too long")

    async def play(files: Path) -> None:
        rested(files / "a.wav", b"abc")
        await until(lambda: lines)
        service.refusal = None
        rested(files / "b.wav", b"abc")
        await until(lambda: len(lines) == 2)

    with capture_logs() as lines:
        run(tmp_path, service, play)
    assert service.files() == {"b.wav": b"abc"}
    assert [(line["event"], line["file"]) for line in lines] == [("file refused", "a.wav"), ("file sent", "b.wav")]


def test_file_that_cannot_be_read_holds_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    service, really = Service(), folder._open

    def opened(path: Path) -> BinaryIO:
        if path.name == "a.wav":
            raise PermissionError(13, "Permission denied")
        return really(path)

    monkeypatch.setattr(folder, "_open", opened)

    async def play(files: Path) -> None:
        rested(files / "a.wav", b"abc")
        await until(lambda: lines)
        rested(files / "b.wav", b"abc")
        await until(lambda: len(lines) == 2)

    with capture_logs() as lines:
        run(tmp_path, service, play)
    assert service.files() == {"b.wav": b"abc"}
    assert [(line["event"], line["file"]) for line in lines] == [("file not read", "a.wav"), ("file sent", "b.wav")]


def test_name_that_is_no_text_is_sent(tmp_path: Path) -> None:
    service = Service()

    async def play(files: Path) -> None:
        rested(files / os.fsdecode(b"caf\xe9.wav"), b"abc")
        await until(lambda: service.files() == {"caf\\xe9.wav": b"abc"})

    run(tmp_path, service, play)


def test_folder_whose_disk_was_away_is_not_sent_again(tmp_path: Path) -> None:
    service = Service()

    async def play(files: Path) -> None:
        rested(files / "a.wav", b"abc")
        await until(lambda: service.files() == {"a.wav": b"abc"})
        (files / "a.wav").rename(tmp_path / "away.wav")
        await asyncio.sleep(0.2)
        (tmp_path / "away.wav").rename(files / "a.wav")
        rested(files / "b.wav", b"abc")
        await until(lambda: service.files() == {"a.wav": b"abc", "b.wav": b"abc"})

    run(tmp_path, service, play)
    assert len(service.bytes) == 2


def test_folder_that_does_not_exist_is_said_once(tmp_path: Path) -> None:
    async def play(files: Path) -> None:
        files.rmdir()
        await until(lambda: lines)
        await asyncio.sleep(0.3)

    with capture_logs() as lines:
        run(tmp_path, Service(), play)
    assert [line["reason"] for line in lines] == [f"{tmp_path / 'files'}: No such file or directory"]


def test_damaged_state_is_named(tmp_path: Path) -> None:
    (tmp_path / folder.STATE).write_bytes(b"no database" * 100)
    with pytest.raises(Unfit, match="every file of the folder is sent again"):
        Folder(Source("recorder", folder=str(tmp_path)), cast(AsyncClient, Service()), tmp_path)
