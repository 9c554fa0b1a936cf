"""The expected pages of a session, computed offline from its acknowledged chunks."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import orjson

from app.sessions.rendering import EventRenderer
from infra import models
from streams.audio import decode
from streams.audio.analysis import Analysis
from streams.models.sound_engine import OnnxSoundEngine
from tests.recovery.load import CONTENT_TYPE, Client, Stream
from topics import media
from topics.geometry import Geometry
from topics.ports.sessions import Windows
from topics.sessions.records import Opened

Events = list[dict[str, Any]]
#: The body that `Client.open` sends.
OPENED = Opened("", "stream", CONTENT_TYPE, "", 1000, 500, default_sensitivity=-2)
ZEROS = {"lost": 0, "invented": 0, "twice": 0, "out of order": 0, "different": 0}


@cache
def engine(directory: Path) -> OnnxSoundEngine:
    return OnnxSoundEngine(directory)


class Stored:
    """The part of `topics.ports.sessions.Sessions` that the edge's renderer of windows needs."""

    def __init__(self, packed: bytes, names: Sequence[str]) -> None:
        self.packed = packed
        self.names = names

    def windows(self, session: str, first: int, count: int) -> Sequence[Windows]:
        tags = len(self.names)
        return [Windows(first, "", self.packed[first * tags : (first + count) * tags])]

    def tags(self, model: str) -> Sequence[str]:
        return self.names


def expected_events(chunks: Sequence[bytes], model: Path | None = None) -> Events:
    """Return the events of a sealed session of `Client.open`, analysed in one pass, by the bundled model by default."""
    scorer = engine(model or models.directory())
    declared = media.parse(CONTENT_TYPE)
    parts = [decode.decode_chunk(chunk, declared) for chunk in chunks]
    analysis = Analysis(scorer, Geometry(OPENED.window_ms, OPENED.hop_ms), parts[0].rate)
    packed = b"".join(analysis.feed(part.samples) for part in parts) + analysis.finish()
    names = [tag.name for tag in scorer.manifest.tags]
    stored = Stored(packed, names)
    renderer = EventRenderer(stored, 1)  # type: ignore[arg-type]
    windows = len(packed) // len(names)
    events: Events = orjson.loads(b"[" + renderer.events("", OPENED, 0, windows) + b"]")
    return events


async def stream_and_compare(client: Client, seed: int = 1) -> Stream:
    """Return a sealed session of four chunks, whose events equal the truth."""
    stream = await client.stream(seed, 4)
    assert await client.events(stream.session) == expected_events(stream.chunks)
    return stream


def faults(read: list[Events], truth: list[Events]) -> dict[str, int]:
    """Count the faults in the windows of sessions; `different` counts faulty sessions."""
    found = dict(ZEROS)
    for events, expected in zip(read, truth, strict=True):
        assert expected
        starts, due = ([event["start_time"] for event in each] for each in (events, expected))
        found["lost"] += len(set(due) - set(starts))
        found["invented"] += len(set(starts) - set(due))
        found["twice"] += len(starts) - len(set(starts))
        found["out of order"] += starts != sorted(starts)
        found["different"] += events != expected
    return found
