"""What was deleted is in no file of the data directory after a round, on a quiet and on a busy service."""

import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, Final

import httpx2
import numpy as np
import pytest

from tests.conftest import own_log
from tests.contract.api import Api, wav
from tests.contract.jobs import SOUND, SPEECH, Jobs
from tests.contract.speakers import Speakers, voice
from tests.process import ORG_KEY, ServiceProcess, ask
from tests.recordings import ANNA
from tests.stub_engines import StubEngines
from tests.waiting import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

RAW: Final = "audio/x-raw; rate=16000; format=s16le"
#: Seconds of running time between two rounds; a restarted service has a shorter life, which ends anywhere in a round.
ROUND: Final = 2
LIFE: Final = 1.0
#: Each life is longer than the one before by this factor, so that a slow machine completes a round too.
LONGER: Final = 1.2
LIVES: Final = 24
#: Bytes of audio to look for, at each second.
PIECE: Final = 64
DONE: Final = "data.erased"
PASSAGE: Final = {"start": 0, "end": 1}


def noise(seed: int, seconds: float) -> bytes:
    """Return 16-bit noise at 16 kHz that is nowhere else."""
    return np.random.default_rng(seed).integers(-3000, 3000, int(16000 * seconds), np.int16).tobytes()


#: The recording of jobs that stay.
KEPT: Final = noise(99, 30)


def pieces(audio: bytes) -> list[bytes]:
    return [audio[at : at + PIECE] for at in range(1000, len(audio) - PIECE, 32000)]


class Customer:
    """A job, sessions, a speaker, a sound and a project. All their texts have a mark, and their audio is noise."""

    def __init__(self, service: ServiceProcess, seed: int) -> None:
        self._service = service
        self.mark = f"Mark{random.Random(seed).randbytes(8).hex()}"
        self._keyed = {"X-Api-Key": service.key}
        job, file, live, small = (noise(seed + at, seconds) for at, seconds in enumerate((40, 12, 20, 4)))
        self._audio = {"job": job, "file": file, "live": live, "small": small}
        prompt = {"audio_insights": True, "caption": True, "audio_insights_prompt": f"say {self.mark}p"}
        texts = {"metadata": {"place": f"{self.mark}m"}, "file_name": f"{self.mark}f.raw"}
        with Api(service) as api, Jobs(service) as jobs, Speakers(service, ORG_KEY) as speakers:
            self._until_is_possible("PATCH", "project", json={"keep_embeddings": True})
            self.job = jobs.accepted(
                wav(job), {**SOUND, **SPEECH, **prompt}, filename=f"{self.mark}j.wav", kind="audio/wav"
            )
            self.sessions = [api.create(kind, RAW, **texts) for kind in ("file", "stream", "stream")]
            for session, audio, size in zip(self.sessions, (file, live, small), (64000, 32000, 1280), strict=True):
                api.send(session, *(audio[at : at + size] for at in range(0, len(audio), size)))
            api.seal(self.sessions[0])
            assert speakers.add(f"{self.mark}s", voice(ANNA)).status_code == 200
            jobs.completed(self.job)
            self._until_is_possible("GET", f"jobs/{self.job}/waveform")
            self._until_is_possible("POST", f"own_sounds/{self.mark}w/sessions/{self.sessions[1]}", json=PASSAGE)
        service.operate("POST", "/projects", json={"name": f"{self.mark}o", "organization": "demo"})

    def _until_is_possible(self, method: str, path: str, **body: Any) -> None:
        """Send a request until it is answered well: the audio must be analysed, or drawn, first."""
        wait_for(lambda: ask(method, self._at(path), headers=self._keyed, **body).is_success)

    def _at(self, path: str) -> str:
        return f"{self._service.url}/api/v1/{path}"

    def delete(self) -> None:
        for path in f"jobs/{self.job}", f"own_sounds/{self.mark}w":
            assert ask("DELETE", self._at(path), headers=self._keyed).is_success
        with Api(self._service) as api, Speakers(self._service, ORG_KEY) as speakers:
            for session in self.sessions:
                assert api.delete(session).is_success
            assert speakers.remove(f"{self.mark}s").status_code == 200
        self._service.operate("DELETE", f"/projects/{self.mark}o")

    def found(self) -> dict[str, list[str]]:
        """Return what is still in a file, with the names of the files."""
        wanted = {"text": self.mark.encode()}
        for name, audio in self._audio.items():
            wanted |= {f"{name} {at}": piece for at, piece in enumerate(pieces(audio))}
        found: dict[str, list[str]] = {}
        for path in self._service.data.rglob("*"):
            try:
                data = path.read_bytes() if path.is_file() else b""
            except FileNotFoundError:
                continue
            for name, piece in wanted.items():
                if piece in data:
                    found.setdefault(name, []).append(str(path.relative_to(self._service.data)))
        return found


def rounds(service: ServiceProcess) -> int:
    return service.log.read_text().count(DONE)


def wait_for_rounds(service: ServiceProcess, count: int) -> None:
    until = rounds(service) + count
    wait_for(lambda: rounds(service) >= until, 120)


def live_until_rounds(service: ServiceProcess, count: int) -> None:
    """Kill the service at once, then stop and kill it in turn until it has completed some rounds."""
    until = rounds(service) + count
    for number in range(LIVES):
        service.stop() if number % 2 else service.kill()
        service.start()
        if number >= 3 and rounds(service) >= until:
            return
        time.sleep(LIFE * LONGER**number)
    raise AssertionError(f"no {count} rounds in {LIVES} lives:\n{service.tail()}")


@contextmanager
def load(service: ServiceProcess) -> Iterator[None]:
    """Stream to sessions that come and go, until the body ends."""
    ended = threading.Event()

    def stream(seed: int) -> None:
        with Api(service) as api:
            while not ended.is_set():
                try:
                    session = api.create("stream", RAW, metadata={"a": "b"})
                    api.send(session, *(noise(1000 * (seed + 1) + at, 0.5) for at in range(8)))
                    api.delete(session)
                except (httpx2.TransportError, AssertionError):
                    time.sleep(0.1)

    threads = [threading.Thread(target=stream, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join()


@pytest.fixture
def victim(request: pytest.FixtureRequest, engines: StubEngines, tmp_path: Path) -> Iterator[ServiceProcess]:
    """A service with an older job of another customer, whose kept audio pins its partition of the log."""
    with own_log(request.param) as log:
        settings = {**log, **engines.settings, "partitions": "1", "erase_seconds": str(ROUND)}
        with ServiceProcess(tmp_path / "data", **settings) as process:
            yield process


def keep_a_job(service: ServiceProcess) -> str:
    with Jobs(service) as jobs:
        kept = jobs.accepted(wav(KEPT))
        jobs.completed(kept)
    return kept


@pytest.mark.parametrize(
    ("victim", "kinds"),
    [("embedded", ("quiet", "busy", "restarted")), pytest.param("kafka", ("quiet",), marks=pytest.mark.kafka)],
    indirect=["victim"],
)
def test_deleted_data_is_in_no_file(victim: ServiceProcess, kinds: tuple[str, ...]) -> None:
    kept = [keep_a_job(victim)]
    for number, kind in enumerate(kinds):
        with load(victim) if kind == "busy" else nullcontext():
            customer = Customer(victim, 10 * number)
            kept.append(keep_a_job(victim))
            assert customer.found(), "the search finds what is there"
            customer.delete()
            if kind == "restarted":
                live_until_rounds(victim, 2)
            else:
                wait_for_rounds(victim, 2)
            assert customer.found() == {}, kind
        # No file can come or go during this search.
        victim.stop()
        assert customer.found() == {}, kind
        victim.start()
    for job in kept:
        answer = ask("GET", f"{victim.url}/api/v1/jobs/{job}/audio", headers={"X-Api-Key": victim.key})
        assert answer.content == wav(KEPT)
