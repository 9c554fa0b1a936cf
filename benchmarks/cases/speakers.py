"""Speakers: what a registration adds to decoding and embedding, what a key costs, and what a refused upload holds."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from statistics import median
from typing import Final, NamedTuple

from app.http.authentication import Authenticator
from app.http.call import Call
from app.http.keys import ORGANIZATION, Keyring
from app.http.metrics import Meters
from benchmarks import processes, procfs, voices
from benchmarks.cases.setup import Setup
from benchmarks.measures import Row, value_row
from benchmarks.voices import ORG_KEY, EngineRoute, VoiceClient
from infra import models
from streams.audio.decode import decode_chunk
from streams.audio.resample import Resampler
from streams.voice.speaker_engine import OnnxSpeakerEngine
from topics import media

SPEAKER: Final = "Anna_Kim"
#: What is in another container is probed and decoded before the engine sees it.
REGISTERING_BARS: Final = {"wav": 1.3, "ogg": None}
KEY_BAR_US: Final = 20.0
REFUSING_BAR_MB: Final = 20.0
#: As many samples as one speaker may have.
REGISTERED: Final = 20
CHECKS: Final = 20_000
TOO_LARGE_MIB: Final = 101
TOO_LARGE: Final = "one of uploaded files is bigger than 100 MB"
#: How often memory is looked at during an upload.
LOOK_SECONDS: Final = 0.005


def registering(setup: Setup) -> Iterator[Row]:
    """Yield the median time of a registration over HTTP, over decoding and embedding alone, for two containers.

    A WAV is sent to the engine as it came, so that its time is also put over decoding here and the route of an engine
    in a process of its own, which is asked over one connection. All take turns; a round is a speaker with as many
    samples as are allowed, who is removed afterwards.
    """
    count = setup.size(REGISTERED)
    alone, port = _alone(), processes.free_port()
    with (
        processes.workplace() as directory,
        processes.service(directory / "data", bundled_engines="true", bootstrap_org_key=ORG_KEY) as server,
        VoiceClient(server) as client,
        processes.engines(directory, port),
        EngineRoute(port) as route,
    ):
        for kind, audio in voices.recordings(directory).items():
            body = voices.form(SPEAKER, audio)
            client.wait(body, SPEAKER)
            _taken(client, route, body, alone, kind, audio, 5)
            rounds = [_taken(client, route, body, alone, kind, audio, count) for _ in range(setup.pairs)]
            yield _registered(kind, "", [(one.registered, one.decoded + one.embedded) for one in rounds])
            if kind == "wav":
                yield _registered(
                    kind,
                    ", over decoding and the engine's route",
                    [(one.registered, one.decoded + one.answered) for one in rounds],
                )


class Round(NamedTuple):
    """Medians in seconds."""

    registered: float
    decoded: float
    embedded: float
    #: By an engine in another process.
    answered: float


def _taken(
    client: VoiceClient,
    route: EngineRoute,
    body: bytes,
    alone: Callable[[bytes, str], tuple[float, float]],
    kind: str,
    audio: bytes,
    count: int,
) -> Round:
    """Register a voice, and do the same work alone, so many times."""
    rounds = [(client.add(body), *alone(audio, kind), route.ask(body)) for _ in range(count)]
    client.remove(SPEAKER)
    return Round(*map(median, zip(*rounds, strict=True)))


def _registered(kind: str, over: str, rounds: Sequence[tuple[float, float]]) -> Row:
    beside = {
        "register ms": median(1000 * ours for ours, _ in rounds),
        "bare ms": median(1000 * bare for _, bare in rounds),
    }
    name = f"registering a voice of {voices.SECONDS} s, {kind}{over}"
    return value_row(
        name, [ours / bare for ours, bare in rounds], "ratio", None if over else REGISTERING_BARS[kind], beside
    )


def _alone() -> Callable[[bytes, str], tuple[float, float]]:
    """Return what decodes and embeds a recording in this thread, and says how many seconds either took."""
    engine = OnnxSpeakerEngine(models.directory("speaker_mini"))
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
    """Yield the microseconds that a handler takes to judge a key whose verdict is remembered.

    This is no ratio: it says as much of the machine as of the service.
    """
    count = setup.size(CHECKS)
    rounds = [asyncio.run(_checks(count)) for _ in range(setup.pairs + 1)]
    yield value_row("a cached key check", rounds[1:], "us", KEY_BAR_US)


async def _checks(count: int) -> float:
    async def ask(key: str) -> str | None:
        return "organization" if key == ORG_KEY else None

    names = (b"host", b"accept", b"accept-encoding", b"user-agent", b"content-type", b"content-length")
    headers = [*((name, b"some value") for name in names), (b"x-org-key", ORG_KEY.encode("ascii"))]
    keys = Authenticator(Keyring(ORGANIZATION, ask, 600), Meters(tuple))
    call = Call({"headers": headers}, asyncio.Queue[dict[str, object]]().get)
    await keys.authenticate(call)
    began = time.perf_counter()
    for _ in range(count):
        await keys.authenticate(call)
    return 1e6 * (time.perf_counter() - began) / count


def refusing(setup: Setup) -> Iterator[Row]:
    """Yield how much the service's memory grows while a voice of more than 100 MB is refused.

    A client either tells the length, or sends chunks of a body that ends some time.
    """
    size = sum(map(len, voices.large(SPEAKER, TOO_LARGE_MIB)))
    forms = {"of known length": {"Content-Length": str(size)}, "in chunks": {}}
    with (
        processes.workplace() as directory,
        processes.service(directory / "data", bootstrap_org_key=ORG_KEY) as server,
        VoiceClient(server) as client,
    ):
        client.post(voices.form(SPEAKER, b""))
        for name, headers in forms.items():
            grown = [_growth(server.pid, client, headers) for _ in range(setup.pairs)]
            yield value_row(f"memory, {TOO_LARGE_MIB} MiB refused, {name}", grown, "MB", REFUSING_BAR_MB)


def _growth(pid: int, client: VoiceClient, headers: dict[str, str]) -> float:
    """Return by how many MB the resident memory of the service and its children grew at most during an upload."""
    pids = procfs.descendants(pid)
    resident = [_resident(pids)]
    finished = threading.Event()

    def look() -> None:
        while not finished.wait(LOOK_SECONDS):
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
