"""Listeners: the analyser measures for them alone, and what they hear is what was analysed."""

from __future__ import annotations

import numpy as np
import pytest

from streams.audio.levels import SoundMeter
from streams.sessions import taps as module
from streams.sessions.taps import Taps
from tests.unit.streams.sessions.studio import FILE, RATE, STREAM
from topics.ports.live import BANDS

OTHER = type(STREAM)("c", "stream", STREAM.content_type, "q", 1000, 500)


def fed(taps: Taps, session: str, predicts: bool = False) -> SoundMeter:
    """Return the meter of a session with three seconds."""
    meter = taps.meter(session, STREAM, predicts)
    assert meter is not None
    meter.feed(RATE, 0, np.ones(3 * RATE, np.float32))
    return meter


def test_nobody_listens() -> None:
    taps = Taps()
    assert not taps.watched
    assert taps.meter("s", STREAM, False) is None


def test_a_listener_of_a_session_gets_pictures_and_one_of_a_project_levels() -> None:
    taps = Taps()
    taps.listen(project="p")
    assert fed(taps, "s").draws is False
    taps.listen(session="s")
    assert taps.meter("s", STREAM, False).draws is True  # type: ignore[union-attr]
    assert taps.meter("t", OTHER, False) is None
    taps.leave(session="s")
    assert taps.meter("s", STREAM, False).draws is False  # type: ignore[union-attr]
    assert taps.window("s", 0) is not None
    taps.leave(project="p")
    assert (taps.watched, taps.window("s", 0)) == (False, None)


def test_windows_are_those_of_the_session() -> None:
    taps = Taps()
    taps.listen(session="s")
    fed(taps, "s")
    lengths = [len(sound.columns) // BANDS for number in range(5) if (sound := taps.window("s", number)) is not None]
    assert lengths == [20, 10, 10, 10, 10], "the first has columns of its own for all of its time"
    assert taps.window("t", 0) is None
    taps.forget("s")
    assert taps.window("s", 0) is None


def test_windows_of_their_own_do_not_overlap() -> None:
    taps = Taps()
    taps.listen(session="s")
    fed(taps, "s", predicts=True)
    lengths = [len(sound.columns) // BANDS for number in range(5) if (sound := taps.window("s", number)) is not None]
    assert lengths == [20, 20, 20]


def test_the_sessions_that_are_remembered_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_METERS", 3)
    taps = Taps()
    taps.listen(project="p")
    for number in range(5):
        fed(taps, str(number))
    assert [number for number in range(5) if taps.window(str(number), 0)] == [2, 3, 4]


def test_geometry_of_two_seconds() -> None:
    taps = Taps()
    taps.listen(session="s")
    opened = type(FILE)("c", "file", FILE.content_type, "p", 2000, 1000)
    meter = taps.meter("s", opened, False)
    assert meter is not None
    meter.feed(RATE, 0, np.ones(3 * RATE, np.float32))
    lengths = [len(sound.columns) // BANDS for number in range(2) if (sound := taps.window("s", number)) is not None]
    assert lengths == [40, 20]
