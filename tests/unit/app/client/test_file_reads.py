"""The asyncio client opens and reads files in threads, a piece at a time."""

import io
import threading
from pathlib import Path
from typing import Any

import pytest

from earshot_client import AsyncClient, _media
from tests.contract.api import silence
from tests.contract.api import wav as wav_of
from tests.unit.app.client.edge import LOST, Edge
from tests.unit.app.conftest import KEY, ORG_KEY, House
from topics.errors import AudioTooLong

WAV = wav_of(silence(100.0))


class Recording(io.BufferedReader):
    """A file that records the threads that used it, and the largest read."""

    def __init__(self, path: Path) -> None:
        super().__init__(io.FileIO(path))
        self.threads = {threading.current_thread()}
        self.most = 0

    def read(self, size: int | None = -1, /) -> bytes:
        self.threads.add(threading.current_thread())
        self.most = max(self.most, 1 << 40 if size is None or size < 0 else size)
        return super().read(size)

    def seek(self, offset: int, whence: int = 0, /) -> int:
        self.threads.add(threading.current_thread())
        return super().seek(offset, whence)


@pytest.fixture
def wav(tmp_path: Path) -> Path:
    path = tmp_path / "street.wav"
    path.write_bytes(WAV)
    return path


@pytest.fixture
def recordings(monkeypatch: pytest.MonkeyPatch) -> list[Recording]:
    """Every file opened by path."""
    files: list[Recording] = []

    def opened(path: Path, *arguments: Any) -> Recording:
        files.append(Recording(path))
        return files[-1]

    monkeypatch.setattr(Path, "open", opened)
    return files


def assert_read_in_threads(recording: Recording) -> None:
    assert threading.main_thread() not in recording.threads
    assert 0 < recording.most <= 1 << 20
    assert recording.closed


async def test_every_call_reads_its_recording_in_threads(
    edge: Edge, house: House, wav: Path, recordings: list[Recording]
) -> None:
    async with AsyncClient(edge.url, KEY, org_key=ORG_KEY) as client:
        assert len([event async for event in client.detect(wav)]) == 199
        edge.faults.append(LOST)
        uploads = len(edge.requests)
        job = house.jobs.jobs[(await client.analyze_file(wav)).id]
        await client.add_voice("Anna_Kim", wav)
        house.speakers.failure = AudioTooLong()
        with pytest.raises(Exception, match="longer than 10 minutes"):
            await client.recognize(wav)
    (session,) = house.sessions.sessions.values()
    assert [len(chunk) for chunk in session.chunks] == [*[_media.CHUNK] * 3, len(WAV) % _media.CHUNK]
    assert (session.opened.content_type, session.opened.file_name) == ("audio/wav", "street.wav")
    (voice,) = house.speakers.organizations["organization"]["Anna_Kim"].voices
    assert [b"".join(session.chunks), b"".join(job.parts.values()), voice] == [WAV] * 3
    assert edge.asked[uploads:] == ["POST analyze_file"] * 2 + ["POST voice", "POST recognition"]
    assert int(edge.requests[uploads].headers["content-length"]) > len(WAV)
    assert len(recordings) == 4
    for recording in recordings:
        assert_read_in_threads(recording)


async def test_open_file_is_read_in_threads_and_stays_open(url: str, house: House, wav: Path) -> None:
    recording = Recording(wav)
    recording.threads.clear()
    raw = "audio/x-raw; rate=8000; format=s16le"
    async with AsyncClient(url, KEY) as client:
        job = house.jobs.jobs[(await client.analyze_file(recording, name="a.pcm", content_type=raw)).id]
    assert job.accepted is not None
    assert (b"".join(job.parts.values()), job.accepted.source.declared) == (WAV, raw)
    assert not recording.closed
    recording.close()
    assert_read_in_threads(recording)
