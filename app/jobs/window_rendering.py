"""Renders packed scores as the windows of a job's result, at sensitivity 0."""

from collections.abc import Iterator, Sequence
from typing import Final

from app.scores import ReportedTag, TagRenderer
from topics.geometry import SENSE
from topics.times import clock

#: Windows rendered at a time, about 2 ms of work.
PIECE: Final = 256
#: Windows start at whole seconds.
_HOP: Final = SENSE.hop_ms // 1000
_REACH: Final = SENSE.window_ms // SENSE.hop_ms
_WINDOW: Final = (
    b'{"id":"w%d","start_time":"%s","end_time":"%s","start_time_sec":%d.0,"end_time_sec":%a,"classes":[%s]}'
)


class WindowRenderer:
    """Renders the windows of one model. A window's id is its number; a class's id adds its tag's number."""

    def __init__(self, tags: Sequence[str]) -> None:
        self.tags = tags
        self._tag_renderer = TagRenderer(tags, 0, {})
        self._templates: dict[ReportedTag, bytes] = {}

    def reported_tags(self, scores: bytes) -> list[list[ReportedTag]]:
        """Return the reported tags of each window, most probable first."""
        return self._tag_renderer.reported_tags(scores)

    def windows(self, first: int, scores: bytes, hours: bool, audio_ms: int) -> Iterator[bytes]:
        """Yield windows `first`, `first` + 1, ... as JSON objects, up to `PIECE` at a time with commas between.

        No window ends after the audio, at `audio_ms`.
        """
        step = PIECE * len(self.tags)
        for start in range(0, len(scores), step):
            tags = self.reported_tags(scores[start : start + step])
            number = first + start // len(self.tags)
            # A window ends where a later one starts.
            times = [min(SENSE.hop_ms * index, audio_ms) for index in range(number, number + len(tags) + _REACH)]
            at = [clock(ms, hours).encode() for ms in times]
            rows = enumerate(zip(at, at[_REACH:], times[_REACH:], tags, strict=False), number)
            yield b",".join([self._window(index, *row) for index, row in rows])

    def _window(self, number: int, start: bytes, end: bytes, end_ms: int, tags: list[ReportedTag]) -> bytes:
        classes = b",".join([(self._templates.get(tag) or self._template(tag)) % number for tag in tags])
        return _WINDOW % (number, start, end, number * _HOP, end_ms / 1000, classes)

    def _template(self, tag: ReportedTag) -> bytes:
        """Return the class of a tag, with a placeholder for the window's number."""
        name, confidence = self._tag_renderer.name_and_probability(tag)
        template = b'{"class":%s,"confidence":%s,"id":"w%%d-%d"}' % (name.replace(b"%", b"%%"), confidence, tag[1])
        self._templates[tag] = template
        return template
