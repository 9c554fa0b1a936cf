"""Renders the events of the live streams."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from msgspec import UNSET, UnsetType
from msgspec.structs import asdict

from app.http.server_sent import named_event
from app.sessions.answers import Level, LiveEnd, LiveSession, LiveWindow, Strip
from app.sessions.lists import listed_session
from app.sessions.rendering import EventRenderer, readable_windows
from topics.geometry import seconds
from topics.ports.live import WindowSound
from topics.ports.sessions import SessionView

#: The most probable tags of a window, reported or not.
TOP: Final = 5
#: Windows rendered at a time; other tasks run in between.
PIECE: Final = 64

#: Returns the level and spectrogram of a window, or None if they are unknown.
SoundOf = Callable[[int], WindowSound | None]


def session_event(session: str, view: SessionView, first: int) -> bytes:
    """Report that the stream of a session starts at window `first`, or that its state changed there."""
    opened = view.opened
    entry = asdict(listed_session(opened.at, session, view))
    size, hop = seconds(opened.window_ms), seconds(opened.hop_ms)
    return named_event(LiveSession(**entry, next_window=first, window_size=size, window_hop=hop))


def ended_event(session: str, view: SessionView) -> bytes:
    """Report that no further window will come."""
    return named_event(LiveEnd(session, readable_windows(view), view.head.error or UNSET))


def window_events(
    renderer: EventRenderer, session: str, view: SessionView, first: int, stop: int, sound_of: SoundOf, ids: bool
) -> Iterator[bytes]:
    """Yield an event for each of the windows [first, stop), which must exist; `ids` adds its number as id.

    Raises:
        Unavailable: some windows are not here.
    """
    opened, geometry = view.opened, view.opened.geometry
    # Milliseconds of a window that the one before covers.
    covered = 0 if view.head.predicts else geometry.window_ms - geometry.hop_ms
    number = first
    for windows, packed in renderer.scored(session, opened, first, stop):
        for place, tags in enumerate(windows.reported_tags(packed)):
            top = windows.top(packed[place * windows.width : (place + 1) * windows.width], TOP)
            level: Level | UnsetType = UNSET
            strip: Strip | UnsetType = UNSET
            if (sound := sound_of(number)) is not None:
                level = Level(sound.rms, sound.peak)
                if sound.columns:
                    strip = Strip(seconds(number * geometry.hop_ms + (covered if number else 0)), sound.columns)
            captured = renderer.captured_at(session, view.head, number * geometry.hop_ms)
            heard = partial(LiveWindow, session_id=session, window=number, captured_at=captured)
            kind = partial(heard, top=top, level=level, strip=strip)
            yield named_event(windows.event(kind, geometry, number, tags), number if ids else None)
            number += 1
