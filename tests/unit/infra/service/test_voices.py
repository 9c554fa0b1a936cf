"""The voice store: whole files or none, complete deletion, and bounded waits."""

import asyncio
import io
import stat
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from fsspec.registry import _registry

from infra.service import voices
from infra.service.voices import FsspecVoices
from streams.speakers.speaker_store import VoiceFiles
from tests.ports import serving
from tests.s3 import S3
from topics.errors import ServiceError, Unavailable

VOICE = bytes(range(256)) * 64


class Torn(io.BytesIO):
    """A file whose reads fail before its end."""

    def read(self, size: int | None = -1) -> bytes:
        if self.tell():
            raise OSError(5, "torn")
        return super().read(10)


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3]:
    with serving(S3()) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        yield server


@pytest.fixture(params=["kept/voices", "file", "memory", pytest.param("s3", marks=pytest.mark.slow)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[VoiceFiles]:
    """A store of the given kind, by default in a directory."""
    match request.param:
        case "file":
            url = f"file://{tmp_path / 'voices'}"
        case "memory":
            url = f"memory://{tmp_path.name}"
        case "s3":
            request.getfixturevalue("bucket")
            url = "s3://bucket/voices"
        case directory:
            url = str(tmp_path / directory)
    with closing(FsspecVoices(url, 20)) as made:
        yield made


def store_in(kind: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("store", [kind], indirect=True)


async def test_file_is_kept_fetched_and_deleted(store: VoiceFiles) -> None:
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


@store_in(".")
async def test_unreadable_file_is_not_kept(tmp_path: Path, store: VoiceFiles) -> None:
    with pytest.raises(Unavailable, match=r"^the voice store does not answer: Input/output error$"):
        await store.keep("zoo/one", Torn(VOICE))
    assert await store.fetch("zoo/one", io.BytesIO()) is False
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.mark.slow
@store_in("s3")
async def test_s3_multipart_upload_is_all_or_nothing(
    bucket: S3, monkeypatch: pytest.MonkeyPatch, store: VoiceFiles
) -> None:
    monkeypatch.setattr(voices, "PIECE", 5 * 1024 * 1024)
    large = VOICE * (voices.PIECE * 5 // 2 // len(VOICE))
    await store.keep("zoo/one", io.BytesIO(large))
    assert bucket.objects == {"/bucket/voices/zoo/one": large}
    into = io.BytesIO()
    await store.fetch("zoo/one", into)
    assert into.getvalue() == large
    await store.discard(["zoo/one"])
    with pytest.raises(Unavailable):
        await store.keep("zoo/one", Torn(large))
    assert (bucket.objects, bucket.uploads) == ({}, {})


@store_in("voices")
async def test_files_are_private_to_owner(tmp_path: Path, store: VoiceFiles) -> None:
    await store.keep("zoo/one", io.BytesIO(VOICE))
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "voices").rglob("*")}
    assert modes == {"zoo": 0o700, "one": 0o600}
    assert stat.S_IMODE((tmp_path / "voices").stat().st_mode) == 0o700


@store_in(".")
async def test_deleting_last_file_removes_directory(tmp_path: Path, store: VoiceFiles) -> None:
    await store.keep("zoo/one", io.BytesIO(VOICE))
    await store.keep("zoo/two", io.BytesIO(VOICE))
    await store.keep("park/one", io.BytesIO(VOICE))
    # As after a crash.
    (tmp_path / "zoo" / ".one.part").write_bytes(VOICE)
    await store.discard(["zoo/one"])
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["one", "park", "two", "zoo"]
    await store.discard(["zoo/two", "park/one"])
    assert list(tmp_path.iterdir()) == []


@store_in(".")
async def test_concurrent_keeps_and_deletes_leave_nothing(tmp_path: Path, store: VoiceFiles) -> None:
    async def one(number: int) -> None:
        await store.keep(f"zoo/{number}", io.BytesIO(VOICE))
        await store.discard([f"zoo/{number}"])

    await asyncio.gather(*(one(number) for number in range(40)))
    assert list(tmp_path.iterdir()) == []


@store_in(".")
async def test_directory_removed_during_creation_is_recreated(
    store: VoiceFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, faults = Path.mkdir, iter([FileExistsError, FileNotFoundError])

    def mkdir(path: Path, **options: Any) -> None:
        if path.name == "zoo" and (fault := next(faults, None)) is not None:
            raise fault
        made(path, **options)

    monkeypatch.setattr(Path, "mkdir", mkdir)
    await store.keep("zoo/one", io.BytesIO(VOICE))
    assert await store.fetch("zoo/one", io.BytesIO())


@store_in("voices")
@pytest.mark.parametrize("name", ["", "/etc/passwd", "../one", "zoo/../../one", "zoo/.one.part", "a\nb", "zoo/"])
async def test_invalid_names_are_rejected(tmp_path: Path, name: str, store: VoiceFiles) -> None:
    for call in store.keep(name, io.BytesIO()), store.fetch(name, io.BytesIO()), store.discard([name]):
        with pytest.raises(Unavailable, match="ValueError"):
            await call
    assert list(tmp_path.iterdir()) == []


@store_in("blocked/voices")
async def test_uncreatable_directory_is_reported(tmp_path: Path, store: VoiceFiles) -> None:
    (tmp_path / "blocked").touch()
    with pytest.raises(Unavailable, match=r"^the voice store does not answer: (Not a directory|File exists)$"):
        await store.keep("zoo/one", io.BytesIO(VOICE))
    await store.discard(["zoo/one"])


async def test_hanging_store_times_out(tmp_path: Path) -> None:
    released = threading.Event()

    class Hung(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            released.wait(60)
            return b""

    with closing(FsspecVoices(str(tmp_path), 0.05)) as store:
        # More than there are threads: calls that wait for a thread have a timeout too.
        calls = (store.keep(f"zoo/{number}", Hung()) for number in range(voices.THREADS + 2))
        ended = await asyncio.gather(*calls, return_exceptions=True)
        assert [str(one) for one in ended] == ["the voice store does not answer: TimeoutError"] * len(ended)
        released.set()


def test_s3_requires_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(_registry, "s3", raising=False)
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(ServiceError, match=r"s3:// yet: .*make extra NAME=s3 in a checkout, "):
        FsspecVoices("s3://bucket/voices")


@pytest.mark.parametrize("url", ["nowhere://user:secret@host/voices", "ftp://user:secret@127.0.0.1:9/voices"])
def test_unusable_store_url_is_rejected_without_secret(url: str) -> None:
    with pytest.raises(ServiceError, match=f"this {url.partition(':')[0]}:// URL") as told:
        FsspecVoices(url)
    assert "secret" not in str(told.value)
