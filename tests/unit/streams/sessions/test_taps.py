"""Listeners: the analyser measures for them alone, and they hear the analysed audio."""

import msgspec
import numpy as np
import pytest

from streams.audio.levels import SoundMeter
from streams.sessions import taps as module
from streams.sessions.taps import Taps
from tests.unit.streams.sessions.studio import RATE, STREAM
from topics.ports.live import BANDS
from topics.sessions.records import Opened

OTHER = msgspec.structs.replace(STREAM, project="q")


def fed(taps: Taps, session: str, predicts: bool = False, opened: Opened = STREAM) -> SoundMeter:
    """Return the meter of a session with three seconds."""
    meter = taps.meter(session, opened, predicts)
    assert meter is not None
    meter.feed(RATE, 0, np.ones(3 * RATE, np.float32))
    return meter


def test_nothing_is_measured_without_listeners() -> None:
    taps = Taps()
    assert not taps.watched
    assert taps.meter("s", STREAM, False) is None


def test_session_listeners_get_pictures_and_project_listeners_levels() -> None:
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


@pytest.mark.parametrize(
    ("window_ms", "predicts", "lengths"),
    [
        # The first one has its own columns for all of its time.
        (1000, False, [20, 10, 10, 10, 10]),
        (1000, True, [20, 20, 20, None, None]),
        (2000, False, [40, 20]),
    ],
    ids=["of a session", "of their own", "of two seconds"],
)
def test_window_sounds_match_session_geometry(window_ms: int, predicts: bool, lengths: list[int | None]) -> None:
    taps = Taps()
    taps.listen(session="s")
    fed(taps, "s", predicts, msgspec.structs.replace(STREAM, window_ms=window_ms, hop_ms=window_ms // 2))
    found = [taps.window("s", number) for number in range(len(lengths))]
    assert [sound and len(sound.columns) // BANDS for sound in found] == lengths
    assert taps.window("t", 0) is None
    taps.forget("s")
    assert taps.window("s", 0) is None


def test_remembered_sessions_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_METERS", 3)
    taps = Taps()
    taps.listen(project="p")
    for number in range(5):
        fed(taps, str(number))
    assert [number for number in range(5) if taps.window(str(number), 0)] == [2, 3, 4]
