"""Windows of job results, compared with a straightforward rendering."""

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from app.http.streaming import PIECE_BYTES, coalesced
from app.jobs.errors import job_error
from app.jobs.window_rendering import PIECE, WindowRenderer
from tests.unit.app.double import TAGS
from topics.errors import AudioError, EngineError
from topics.scores import probability, threshold
from topics.times import clock


def naive(first: int, scores: bytes, audio_ms: int) -> list[dict[str, Any]]:
    """Return every window, testing every tag."""
    windows = []
    for number in range(len(scores) // len(TAGS)):
        row = scores[number * len(TAGS) : (number + 1) * len(TAGS)]
        found = sorted((-stored, tag) for tag, stored in enumerate(row) if stored >= threshold(0))
        windows.append(
            {
                "id": f"w{first + number}",
                "start_time": clock((first + number) * 1000, hours=False),
                "end_time": clock(min((first + number + 2) * 1000, audio_ms), hours=False),
                "start_time_sec": float(first + number),
                "end_time_sec": min(float(first + number + 2), audio_ms / 1000),
                "classes": [
                    {"class": TAGS[tag], "confidence": probability(-minus), "id": f"w{first + number}-{tag}"}
                    for minus, tag in found
                ],
            }
        )
    return windows


@settings(max_examples=30, deadline=None)
@given(
    first=st.integers(0, 40_000),
    scores=st.binary(max_size=8 * len(TAGS)),
    copies=st.sampled_from([1, PIECE // 3]),
    last_ms=st.integers(1, 2000),
)
def test_windows_match_naive_rendering(first: int, scores: bytes, copies: int, last_ms: int) -> None:
    scores = scores[: len(scores) // len(TAGS) * len(TAGS)] * copies
    audio_ms = (first + max(len(scores) // len(TAGS), 1) - 1) * 1000 + last_ms
    pieces = list(WindowRenderer(TAGS).windows(first, scores, hours=False, audio_ms=audio_ms))
    assert json.loads(b"[" + b",".join(pieces) + b"]") == naive(first, scores, audio_ms)


def test_tag_names_are_escaped() -> None:
    (piece,) = WindowRenderer(['100 % "sure" %d']).windows(7, b"\xff", hours=False, audio_ms=9000)
    (found,) = json.loads(piece)["classes"]
    assert (found["class"], found["id"]) == ('100 % "sure" %d', "w7-0")


def test_small_pieces_are_coalesced() -> None:
    small, large = b"x" * 1000, b"y" * PIECE_BYTES
    pieces = list(coalesced([small] * 100 + [large] + [small]))
    assert b"".join(pieces) == small * 100 + large + small
    assert all(len(piece) >= PIECE_BYTES for piece in pieces[:-1])
    assert len(pieces) == 3
    assert list(coalesced([])) == []


def test_audio_error_reason_is_safe_header_value() -> None:
    reply = job_error(500, AudioError("bad\r\nSet-Cookie: a\x00b ☃ é" + "x" * 1000))
    assert (reply.status, reply.body) == (500, b"Internal Server Error")
    reason = dict(reply.headers)[b"earshot-reason"]
    assert reason.startswith(b"bad  Set-Cookie: a b ? \xe9xxx")
    assert len(reason) == 500


def test_internal_error_is_not_disclosed() -> None:
    reply = job_error(500, EngineError("secret path"))
    assert (reply.body, b"earshot-reason" in dict(reply.headers)) == (b"Internal Server Error", False)
