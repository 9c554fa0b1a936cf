"""The voice store: all of a file or nothing, deleted without a trace, and no wait without an end."""

from __future__ import annotations

import asyncio
import io
import stat
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import TypeVar

import pytest
from fsspec.registry import _registry

from infra.service import voices
from infra.service.voices import FsspecVoices
from streams.speakers.store import VoiceFiles
from tests.s3 import S3, s3
from topics.errors import ServiceError, Unavailable

T = TypeVar("T")

VOICE = bytes(range(256)) * 64


def tell(url: str, story: Callable[[VoiceFiles], Coroutine[object, object, T]], timeout: float = 20) -> T:
    store = FsspecVoices(url, timeout)
    try:
        return asyncio.run(story(store))
    finally:
        store.close()


class Torn(io.BytesIO):
    """A file that cannot be read to its end."""

    def read(self, size: int | None = -1) -> bytes:
        if self.tell():
            raise OSError(5, "torn")
        return super().read(10)


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3]:
    with s3() as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        yield server


@pytest.fixture(params=["directory", "file", "memory", pytest.param("s3", marks=pytest.mark.slow)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    match request.param:
        case "directory":
            return str(tmp_path / "kept" / "voices")
        case "file":
            return f"file://{tmp_path / 'voices'}"
        case "memory":
            return f"memory://{tmp_path.name}"
        case _:
            request.getfixturevalue("bucket")
            return "s3://bucket/voices"


def test_a_file_is_kept_and_deleted(url: str) -> None:
    async def story(store: VoiceFiles) -> None:
        file = io.BytesIO(b"head" + VOICE)
        file.seek(4)
        await store.keep("zoo/one", file)
        await store.keep("zoo/two.wav", io.BytesIO(b"two"))
        into = io.BytesIO()
        assert await store.fetch("zoo/one", into) is True
        assert into.getvalue() == VOICE
        await store.discard(["zoo/one", "zoo/never", "never/one"])
        await store.discard([])
        assert await store.fetch("zoo/one", io.BytesIO()) is False
        assert await store.fetch("zoo/two.wav", io.BytesIO()) is True

    tell(url, story)


def test_a_file_that_cannot_be_read_is_not_kept(tmp_path: Path) -> None:
    async def story(store: VoiceFiles) -> None:
        with pytest.raises(Unavailable, match=r"^the voice store does not answer: Input/output error$"):
            await store.keep("zoo/one", Torn(VOICE))
        assert await store.fetch("zoo/one", io.BytesIO()) is False
        assert [path for path in tmp_path.rglob("*") if path.is_file()] == []

    tell(str(tmp_path), story)


@pytest.mark.slow
def test_s3_takes_a_large_file_in_parts_and_half_a_file_never(bucket: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(voices, "PIECE", 5 * 1024 * 1024)
    large = VOICE * (voices.PIECE * 5 // 2 // len(VOICE))

    async def story(store: VoiceFiles) -> None:
        await store.keep("zoo/one", io.BytesIO(large))
        assert bucket.objects == {"/bucket/voices/zoo/one": large}
        into = io.BytesIO()
        await store.fetch("zoo/one", into)
        assert into.getvalue() == large
        await store.discard(["zoo/one"])
        with pytest.raises(Unavailable):
            await store.keep("zoo/one", Torn(large))
        assert (bucket.objects, bucket.uploads) == ({}, {})

    tell("s3://bucket/voices", story)


def test_only_the_owner_reads_the_files(tmp_path: Path) -> None:
    async def story(store: VoiceFiles) -> None:
        await store.keep("zoo/one", io.BytesIO(VOICE))
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "voices").rglob("*")}
        assert modes == {"zoo": 0o700, "one": 0o600}
        assert stat.S_IMODE((tmp_path / "voices").stat().st_mode) == 0o700

    tell(str(tmp_path / "voices"), story)


def test_nothing_of_an_organization_is_left(tmp_path: Path) -> None:
    async def story(store: VoiceFiles) -> None:
        await store.keep("zoo/one", io.BytesIO(VOICE))
        await store.keep("zoo/two", io.BytesIO(VOICE))
        await store.keep("park/one", io.BytesIO(VOICE))
        # What a crash leaves behind.
        (tmp_path / "zoo" / ".one.part").write_bytes(VOICE)
        await store.discard(["zoo/one"])
        assert sorted(path.name for path in tmp_path.rglob("*")) == ["one", "park", "two", "zoo"]
        await store.discard(["zoo/two", "park/one"])
        assert list(tmp_path.iterdir()) == []

    tell(str(tmp_path), story)


def test_files_that_come_and_go_at_once(tmp_path: Path) -> None:
    async def story(store: VoiceFiles) -> None:
        async def one(number: int) -> None:
            await store.keep(f"zoo/{number}", io.BytesIO(VOICE))
            await store.discard([f"zoo/{number}"])

        await asyncio.gather(*(one(number) for number in range(40)))
        assert list(tmp_path.iterdir()) == []

    tell(str(tmp_path), story)


@pytest.mark.parametrize("name", ["", "/etc/passwd", "../one", "zoo/../../one", "zoo/.one.part", "a\nb", "zoo/"])
def test_names_that_are_none(tmp_path: Path, name: str) -> None:
    async def story(store: VoiceFiles) -> None:
        for call in store.keep(name, io.BytesIO()), store.fetch(name, io.BytesIO()), store.discard([name]):
            with pytest.raises(Unavailable, match="ValueError"):
                await call

    tell(str(tmp_path / "voices"), story)
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    async def story(store: VoiceFiles) -> None:
        with pytest.raises(Unavailable, match=r"^the voice store does not answer: (Not a directory|File exists)$"):
            await store.keep("zoo/one", io.BytesIO(VOICE))
        await store.discard(["zoo/one"])

    tell(str(tmp_path / "file"), story)


def test_a_store_that_hangs_is_not_waited_for(tmp_path: Path) -> None:
    released = threading.Event()

    class Hung(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            released.wait(10)
            return b""

    async def story(store: VoiceFiles) -> None:
        # More than there are threads: those that wait for one have an end, too.
        calls = (store.keep(f"zoo/{number}", Hung()) for number in range(voices.THREADS + 2))
        ended = await asyncio.gather(*calls, return_exceptions=True)
        assert [str(one) for one in ended] == ["the voice store does not answer: TimeoutError"] * len(ended)
        released.set()

    tell(str(tmp_path), story, timeout=0.05)


def test_the_address_of_a_store_is_not_told() -> None:
    async def story(store: VoiceFiles) -> None:
        with pytest.raises(Unavailable) as told:
            await store.fetch("zoo/one", io.BytesIO())
        assert "secret" not in str(told.value)

    with pytest.raises(ServiceError) as told:
        tell("ftp://user:secret@127.0.0.1:9/voices", story)
    assert "secret" not in str(told.value)


def test_s3_needs_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(_registry, "s3", raising=False)
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(ServiceError, match=r"s3:// yet: pip install 'earshot-server\[s3\]'"):
        FsspecVoices("s3://bucket/voices")


def test_a_scheme_that_nobody_knows() -> None:
    with pytest.raises(ServiceError, match="this nowhere:// URL"):
        FsspecVoices("nowhere://user:secret@host/voices")
