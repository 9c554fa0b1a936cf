"""Packed scores as the windows of a job's result, at sensitivity 0."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from app.sessions.rendering import Found, Palette
from topics.geometry import SENSE

#: Windows that are rendered at a time, about 2 ms of work.
PIECE: Final = 256
HOUR_MS: Final = 3_600_000
#: Windows begin and end at whole seconds.
_HOP: Final = SENSE.hop_ms // 1000
_LENGTH: Final = SENSE.window_ms // 1000
_REACH: Final = _LENGTH // _HOP
_WINDOW: Final = (
    b'{"id":"w%d","start_time":"%s","end_time":"%s","start_time_sec":%d.0,"end_time_sec":%d.0,"classes":[%s]}'
)


class Chart:
    """The windows of one model. A window's id is its number, a class's id adds the number of its tag."""

    def __init__(self, tags: Sequence[str]) -> None:
        self.tags = tags
        self._palette = Palette(tags, 0, {})
        self._forms: dict[Found, bytes] = {}

    def found(self, scores: bytes) -> list[list[Found]]:
        """Return, for each window, the tags that are reported, the most probable first."""
        return self._palette.found(scores)

    def windows(self, first: int, scores: bytes, hours: bool) -> Iterator[bytes]:
        """Yield windows `first`, `first` + 1, ... as JSON objects, up to `PIECE` with commas between."""
        step = PIECE * len(self.tags)
        for start in range(0, len(scores), step):
            found = self._palette.found(scores[start : start + step])
            number = first + start // len(self.tags)
            # A window's end is the beginning of a later one.
            at = [clock(SENSE.hop_ms * index, hours).encode() for index in range(number, number + len(found) + _REACH)]
            rows = enumerate(zip(at, at[_REACH:], found, strict=False), number)
            yield b",".join([self._window(index, *row) for index, row in rows])

    def _window(self, number: int, start: bytes, end: bytes, found: list[Found]) -> bytes:
        classes = b",".join([(self._forms.get(entry) or self._form(entry)) % number for entry in found])
        second = number * _HOP
        return _WINDOW % (number, start, end, second, second + _LENGTH, classes)

    def _form(self, entry: Found) -> bytes:
        """The class of a found tag, with a place for the number of its window."""
        name, confidence = self._palette.shown(entry)
        form = b'{"class":%s,"confidence":%s,"id":"w%%d-%d"}' % (name.replace(b"%", b"%%"), confidence, entry[1])
        self._forms[entry] = form
        return form


def clock(ms: int, hours: bool) -> str:
    """Return a time as `MM:SS.ss`, with the hours before where they are asked for or there are any."""
    minutes, left = divmod(ms // 10, 6000)
    seconds = f"{left // 100:02d}.{left % 100:02d}"
    if hours or ms >= HOUR_MS:
        return f"{minutes // 60:02d}:{minutes % 60:02d}:{seconds}"
    return f"{minutes:02d}:{seconds}"
