"""Speakers: the time of a registration and of a key check, and the memory that a rejected upload takes."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from http.client import HTTPConnection
from statistics import median
from typing import Final, NamedTuple

from app.http.bodies import BodyQuota
from app.http.call import Call
from app.http.metrics import Meters
from app.identity.authentication import Authenticator
from app.identity.keys import ORGANIZATION, KeyRateLimiter, Keyring
from benchmarks import processes, procfs, voices
from benchmarks.cases.setup import Setup, running_service
from benchmarks.measures import Row, value_row
from benchmarks.voices import ORG_KEY, VoiceClient, embedding_seconds
from infra import models
from streams.audio.decode import decode_chunk
from streams.audio.resample import Resampler
from streams.voice.speaker_engine import OnnxSpeakerEngine
from tests.ports import free_port
from topics import media

SPEAKER: Final = "Anna_Kim"
#: Audio in a container other than WAV is probed and decoded before the engine gets it.
REGISTERING_BARS: Final = {"wav": 1.3, "ogg": None}
KEY_BAR_US: Final = 20.0
REFUSING_BAR_MB: Final = 20.0
#: Maximum samples of one speaker.
REGISTERED: Final = 20
CHECKS: Final = 20_000
TOO_LARGE_MIB: Final = 101
TOO_LARGE: Final = "one of uploaded files is bigger than 100 MB"
#: Seconds between memory readings during an upload.
POLL_SECONDS: Final = 0.005


def registering(setup: Setup) -> Iterator[Row]:
    """Yield the median time of a registration over HTTP, relative to decoding and embedding alone, for two containers.

    The service sends a WAV to the engine unchanged, so WAV has a second ratio: to decoding here plus a request to a
    separate engine process over one connection. All alternate. A round registers as many samples as one speaker may
    have, then removes the speaker.
    """
    count = setup.size(REGISTERED)
    alone, port = _embedding_timer(), free_port()
    with (
        running_service(bundled_engines="true", bootstrap_org_key=ORG_KEY) as (server, directory),
        closing(VoiceClient(server)) as client,
        processes.engines(directory, port),
        closing(HTTPConnection("127.0.0.1", port, timeout=60)) as route,
    ):
        for kind, audio in voices.recordings(directory).items():
            body = voices.form(SPEAKER, audio)
            client.wait(body, SPEAKER)
            _run_round(client, route, body, alone, kind, audio, 5)
            rounds = [_run_round(client, route, body, alone, kind, audio, count) for _ in range(setup.pairs)]
            yield _registration_row(kind, "", [(one.registered, one.decoded + one.embedded) for one in rounds])
            if kind == "wav":
                yield _registration_row(
                    kind,
                    ", over decoding and the engine's route",
                    [(one.registered, one.decoded + one.answered) for one in rounds],
                )


class RoundMedians(NamedTuple):
    """Median seconds of each kind of work in a round."""

    registered: float
    decoded: float
    embedded: float
    #: Of a request to a separate engine process.
    answered: float


def _run_round(
    client: VoiceClient,
    route: HTTPConnection,
    body: bytes,
    alone: Callable[[bytes, str], tuple[float, float]],
    kind: str,
    audio: bytes,
    count: int,
) -> RoundMedians:
    """Register a voice `count` times, each time also doing the same work without the service."""
    rounds = [(client.add(body), *alone(audio, kind), embedding_seconds(route, body)) for _ in range(count)]
    client.remove(SPEAKER)
    return RoundMedians(*map(median, zip(*rounds, strict=True)))


def _registration_row(kind: str, over: str, rounds: Sequence[tuple[float, float]]) -> Row:
    beside = {
        "register ms": median(1000 * ours for ours, _ in rounds),
        "bare ms": median(1000 * bare for _, bare in rounds),
    }
    name = f"registering a voice of {voices.SECONDS} s, {kind}{over}"
    return value_row(
        name, [ours / bare for ours, bare in rounds], "ratio", None if over else REGISTERING_BARS[kind], beside
    )


def _embedding_timer() -> Callable[[bytes, str], tuple[float, float]]:
    """Return a function that decodes and embeds a recording in this thread and returns the seconds of each."""
    engine = OnnxSpeakerEngine(models.directory(models.SPEAKERS))
    rate = engine.manifest.input.sample_rate

    def timed(audio: bytes, kind: str) -> tuple[float, float]:
        began = time.perf_counter()
        pcm = decode_chunk(audio, media.parse(f"audio/{kind}"))
        samples = pcm.samples if pcm.rate == rate else Resampler(pcm.rate, rate).feed(pcm.samples)
        decoded = time.perf_counter()
        engine.embed(samples)
        return decoded - began, time.perf_counter() - decoded

    return timed


def keys(setup: Setup) -> Iterator[Row]:
    """Yield the microseconds that a handler takes to check a cached key.

    This absolute figure depends on the machine as much as on the service.
    """
    count = setup.size(CHECKS)
    rounds = [asyncio.run(_check_us(count)) for _ in range(setup.pairs + 1)]
    yield value_row("a cached key check", rounds[1:], "us", KEY_BAR_US)


async def _check_us(count: int) -> float:
    async def ask(key: str) -> str | None:
        return "organization" if key == ORG_KEY else None

    names = (b"host", b"accept", b"accept-encoding", b"user-agent", b"content-type", b"content-length")
    headers = [*((name, b"some value") for name in names), (b"x-org-key", ORG_KEY.encode("ascii"))]
    keys = Authenticator(Keyring(ORGANIZATION, ask, 600, KeyRateLimiter(1)), Meters(tuple))
    call = Call({"headers": headers}, asyncio.Queue[dict[str, object]]().get, BodyQuota(0))
    await keys.authenticate(call)
    began = time.perf_counter()
    for _ in range(count):
        await keys.authenticate(call)
    return 1e6 * (time.perf_counter() - began) / count


def refusing(setup: Setup) -> Iterator[Row]:
    """Yield the growth of the service's memory while it rejects a voice of more than 100 MB.

    One client sends a Content-Length, the other sends the body in chunks.
    """
    size = sum(map(len, voices.large(SPEAKER, TOO_LARGE_MIB)))
    forms = {"of known length": {"Content-Length": str(size)}, "in chunks": {}}
    with running_service(bootstrap_org_key=ORG_KEY) as (server, _), closing(VoiceClient(server)) as client:
        client.post(voices.form(SPEAKER, b""))
        for name, headers in forms.items():
            grown = [_memory_growth_mb(server.pid, client, headers) for _ in range(setup.pairs)]
            yield value_row(f"memory, {TOO_LARGE_MIB} MiB refused, {name}", grown, "MB", REFUSING_BAR_MB)


def _memory_growth_mb(pid: int, client: VoiceClient, headers: dict[str, str]) -> float:
    """Return the largest growth in MB of the resident memory of the service and its children during an upload."""
    pids = procfs.descendants(pid)
    resident = [_resident(pids)]
    finished = threading.Event()

    def look() -> None:
        while not finished.wait(POLL_SECONDS):
            resident.append(_resident(pids))

    looking = threading.Thread(target=look)
    looking.start()
    try:
        error = client.post(voices.large(SPEAKER, TOO_LARGE_MIB), headers)
    finally:
        finished.set()
        looking.join()
    if error != TOO_LARGE:
        raise processes.BenchmarkError(f"{TOO_LARGE_MIB} MiB were not refused: {error!r}")
    return (max(resident) - resident[0]) / 1e6


def _resident(pids: set[int]) -> int:
    return sum(map(procfs.resident_bytes, pids))
