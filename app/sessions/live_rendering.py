"""The events of the live streams, as listeners get them."""

from collections.abc import Callable, Iterator
from typing import Final

import msgspec
import pybase64

from app.http.server_sent import event
from app.sessions.lists import listed_session
from app.sessions.rendering import EventRenderer, readable_windows
from topics.geometry import Geometry, seconds
from topics.ports.live import WindowSound
from topics.ports.sessions import SessionView

#: The most probable tags of a window, whether they are reported or not.
TOP: Final = 5
#: Windows that are rendered at a time; others get their turn in between.
PIECE: Final = 64

#: Level and spectrogram of a window, or None if they are not known.
SoundOf = Callable[[int], WindowSound | None]


def session_event(session: str, view: SessionView, first: int) -> bytes:
    """Say that a session is listened to from its window `first` on, or has changed its state there."""
    opened = view.opened
    fields = {
        **listed_session(opened.at, session, view),
        "next_window": first,
        "window_size": seconds(opened.window_ms),
        "window_hop": seconds(opened.hop_ms),
    }
    return event("session", None, msgspec.json.encode(fields))


def ended_event(session: str, view: SessionView) -> bytes:
    """Say that no further window will come."""
    fields: dict[str, object] = {"session_id": session, "windows": readable_windows(view)}
    if view.head.error is not None:
        fields["error"] = view.head.error
    return event("ended", None, msgspec.json.encode(fields))


def gone_event(name: str, session: str) -> bytes:
    return event(name, None, msgspec.json.encode({"session_id": session}))


def behind_event(session: str, first: int, stop: int) -> bytes:
    """Say that windows [first, stop) come late, without what they sounded like where that is forgotten."""
    return event("behind", None, msgspec.json.encode({"session_id": session, "first": first, "stop": stop}))


def window_events(
    renderer: EventRenderer, session: str, view: SessionView, first: int, stop: int, sound_of: SoundOf, ids: bool
) -> Iterator[bytes]:
    """Yield an event for each of the windows [first, stop), which must exist; with its number as id where `ids`.

    Raises:
        Unavailable: the windows are not all here.
    """
    opened, predicts = view.opened, bool(view.head.predicts)
    geometry = Geometry(opened.window_ms, opened.hop_ms)
    number = first
    for tag_renderer, packed in renderer.scored(session, opened, first, stop):
        width = tag_renderer.width
        for place, tags in enumerate(tag_renderer.tags(packed)):
            top = tag_renderer.top(packed[place * width : (place + 1) * width], TOP)
            start, end = geometry.bounds(number)
            sound = sound_of(number)
            strip_at = start if number == 0 or predicts else seconds(number * opened.hop_ms + _earlier(geometry))
            data = b'{"session_id":"%s","window":%d,"start_time":%s,"end_time":%s,"tags":[%s],"top":[%s]%s}' % (
                session.encode("ascii"), number, _number(start), _number(end), tags, top,
                b"" if sound is None else _sound(sound, strip_at),
            )  # fmt: skip
            yield event("window", number if ids else None, data)
            number += 1


def _earlier(geometry: Geometry) -> int:
    """Return how much of a window lies in the one before it, milliseconds."""
    return geometry.window_ms - geometry.hop_ms


def _sound(sound: WindowSound, start: float) -> bytes:
    level = b',"level":{"rms":%s,"peak":%s}' % (_number(sound.rms), _number(sound.peak))
    if not sound.columns:
        return level
    return level + b',"strip":{"start_time":%s,"columns":"%s"}' % (_number(start), pybase64.b64encode(sound.columns))


def _number(value: float) -> bytes:
    return repr(value).encode("ascii")
