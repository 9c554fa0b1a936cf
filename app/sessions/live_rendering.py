"""Renders the events of the live streams."""

from collections.abc import Callable, Iterator
from typing import Final

import pybase64
from msgspec import UNSET

from app.http.server_sent import event, json_event
from app.sessions.answers import LiveEnd
from app.sessions.lists import listed_session
from app.sessions.rendering import EventRenderer, readable_windows
from topics.geometry import Geometry, seconds
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
    fields = {
        **listed_session(opened.at, session, view),
        "next_window": first,
        "window_size": seconds(opened.window_ms),
        "window_hop": seconds(opened.hop_ms),
    }
    return json_event("session", fields)


def ended_event(session: str, view: SessionView) -> bytes:
    """Report that no further window will come."""
    return json_event("ended", LiveEnd(session, readable_windows(view), view.head.error or UNSET))


def window_events(
    renderer: EventRenderer, session: str, view: SessionView, first: int, stop: int, sound_of: SoundOf, ids: bool
) -> Iterator[bytes]:
    """Yield an event for each of the windows [first, stop), which must exist; `ids` adds its number as id.

    Raises:
        Unavailable: some windows are not here.
    """
    opened, predicts = view.opened, bool(view.head.predicts)
    geometry = opened.geometry
    number = first
    for tag_renderer, packed in renderer.scored(session, opened, first, stop):
        width = tag_renderer.width
        for place, tags in enumerate(tag_renderer.tags(packed)):
            top = tag_renderer.top(packed[place * width : (place + 1) * width], TOP)
            start, end = geometry.bounds(number)
            sound = sound_of(number)
            strip_at = start if number == 0 or predicts else seconds(number * opened.hop_ms + _earlier(geometry))
            data = b'{"session_id":"%s","window":%d,"start_time":%a,"end_time":%a,"tags":[%s],"top":[%s]%s}' % (
                session.encode("ascii"), number, start, end, tags, top,
                b"" if sound is None else _sound(sound, strip_at),
            )  # fmt: skip
            yield event("window", number if ids else None, data)
            number += 1


def _earlier(geometry: Geometry) -> int:
    """Return the overlap of a window with the previous one, milliseconds."""
    return geometry.window_ms - geometry.hop_ms


def _sound(sound: WindowSound, start: float) -> bytes:
    level = b',"level":{"rms":%a,"peak":%a}' % (sound.rms, sound.peak)
    if not sound.columns:
        return level
    return level + b',"strip":{"start_time":%a,"columns":"%s"}' % (start, pybase64.b64encode(sound.columns))
