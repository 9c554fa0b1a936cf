"""Packed scores to JSON, compared with a straightforward rendering."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.sessions.rendering import PIECE, EventRenderer
from tests.unit.app.double import MODEL, TAGS, MemorySessions
from topics.errors import Unavailable
from topics.geometry import SENSE, SESSIONS, Geometry
from topics.ports.sessions import Windows
from topics.scores import probability, threshold
from topics.sessions.records import Opened

SESSION = "a" * 24
sensitivities = st.integers(-2, 2)


class Shelf(MemorySessions):
    """Sessions with given scores, which count reads."""

    def __init__(self, scores: bytes, cut: int = 0) -> None:
        super().__init__()
        self.scores = scores
        self.cut = cut
        self.reads = 0

    def windows(self, session: str, first: int, count: int) -> Sequence[Windows]:
        self.reads += 1
        width, end = len(TAGS), first + count
        cut = min(max(self.cut, first), end)
        runs = ((first, cut), (cut, end))
        return [
            Windows(start, MODEL, self.scores[start * width : stop * width]) for start, stop in runs if stop > start
        ]


def opened(default: int = 0, by_tag: dict[str, int] | None = None, geometry: Geometry = SESSIONS) -> Opened:
    window, hop = geometry.window_ms, geometry.hop_ms
    return Opened("c", "stream", "audio/wav", "p", window, hop, None, default, by_tag or {})


def naive(scores: bytes, known: Opened) -> list[dict[str, Any]]:
    """Return every window, testing every tag."""
    events = []
    for window in range(len(scores) // len(TAGS)):
        tags = []
        for tag, name in enumerate(TAGS):
            stored = scores[window * len(TAGS) + tag]
            sensitivity = known.tags_sensitivity.get(name, known.default_sensitivity)
            if stored >= threshold(sensitivity):
                tags.append((threshold(sensitivity) - stored, tag, name, probability(stored, sensitivity)))
        found = [{"name": name, "probability": shown} for _, _, name, shown in sorted(tags)]
        start = window * known.hop_ms / 1000
        end = start + known.window_ms / 1000
        events.append({"start_time": start, "end_time": end, "tags": found or [{"name": "Others", "probability": 0.0}]})
    return events


def rendered(shelf: Shelf, known: Opened, first: int, end: int) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = json.loads(
        b"[" + EventRenderer(shelf, 1 << 20).events(SESSION, known, first, end) + b"]"
    )
    return events


@given(
    scores=st.binary(min_size=1, max_size=40 * len(TAGS)),
    default=sensitivities,
    by_tag=st.dictionaries(st.sampled_from(TAGS), sensitivities),
    cut=st.integers(0, 40),
)
def test_windows_match_naive_rendering(scores: bytes, default: int, by_tag: dict[str, int], cut: int) -> None:
    count = len(scores) // len(TAGS)
    known = opened(default, by_tag)
    assert rendered(Shelf(scores, cut), known, 0, count) == naive(scores[: count * len(TAGS)], known)


def test_piece_larger_than_cache_is_rendered() -> None:
    renderer, session = EventRenderer(Shelf(bytes(2 * len(TAGS)), 1), 1), opened(0, {})
    assert renderer.events(SESSION, session, 0, 2) == renderer.events(SESSION, session, 0, 2)


def test_thresholds_of_every_sensitivity() -> None:
    for sensitivity in range(-2, 3):
        edge = threshold(sensitivity)
        scores = bytes([edge - 1, edge, 0, 0, 255])
        (event,) = rendered(Shelf(scores), opened(sensitivity), 0, 1)
        assert [tag["name"] for tag in event["tags"]] == [TAGS[4], TAGS[1]]
        assert event["tags"][1]["probability"] >= 0.5


def test_every_slice_of_windows_gives_same_events() -> None:
    count = 2 * PIECE + 5
    scores = bytes((7 * n) % 256 for n in range(count * len(TAGS)))
    shelf, known = Shelf(scores), opened()
    renderer = EventRenderer(shelf, 1 << 20)
    whole = naive(scores, known)
    for first, end in ((0, count), (0, PIECE), (PIECE, count), (PIECE - 1, PIECE + 1), (3, 4), (5, 5), (count, count)):
        assert json.loads(b"[" + renderer.events(SESSION, known, first, end) + b"]") == whole[first:end]


def test_pieces_are_cached_within_limit() -> None:
    shelf, known = Shelf(bytes(len(TAGS) * PIECE * 4)), opened()
    renderer = EventRenderer(shelf, 1 << 20)
    for _ in range(3):
        renderer.events(SESSION, known, 0, PIECE * 4)
    assert shelf.reads == 4
    small = EventRenderer(shelf, 10)
    for _ in range(3):
        small.events(SESSION, known, 0, PIECE)
    assert shelf.reads == 4 + 3


def test_whole_seconds_have_no_decimal_point() -> None:
    shelf = Shelf(bytes(2 * len(TAGS)))
    assert b'"start_time":1,"end_time":3,' in EventRenderer(shelf, 0).events(SESSION, opened(geometry=SENSE), 0, 2)
    assert b'"start_time":0.5,"end_time":1.5,' in EventRenderer(shelf, 0).events(SESSION, opened(), 0, 2)


def test_missing_windows_raise() -> None:
    with pytest.raises(Unavailable):
        EventRenderer(Shelf(bytes(3 * len(TAGS))), 0).events(SESSION, opened(), 0, 4)
