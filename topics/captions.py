"""Caption files, as WebVTT and as SubRip."""

import re
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

#: Control characters, which could affect terminals.
_CONTROLS: Final = dict.fromkeys((*range(32), *range(127, 160)), " ")
_ARROW: Final = re.compile("-{2,}>")


class Cue(msgspec.Struct, frozen=True):
    """Lines of text with their start and end."""

    start_ms: int
    end_ms: int
    #: The speaker; "" if unknown, or if nobody speaks.
    voice: str
    lines: tuple[str, ...]


def webvtt(cues: Iterable[Cue]) -> Iterator[bytes]:
    """Yield a WebVTT file (https://www.w3.org/TR/webvtt1/), with speakers in voice tags."""
    yield b"WEBVTT\n\n"
    for cue in cues:
        text = "\n".join(map(_escaped, _plain(cue)))
        voice = f"<v {_escaped(cue.voice)}>" if cue.voice else ""
        yield f"{_times(cue, '.')}\n{voice}{text}\n\n".encode()


def subrip(cues: Iterable[Cue]) -> Iterator[bytes]:
    """Yield a SubRip file. It has no escapes, so arrows in the text are shortened, to differ from time lines."""
    for number, cue in enumerate(cues, 1):
        text = _ARROW.sub("->", "\n".join(_plain(cue)))
        yield f"{number}\n{_times(cue, ',')}\n{text}\n\n".encode()


def _plain(cue: Cue) -> Iterator[str]:
    return (line.translate(_CONTROLS) for line in cue.lines)


def _times(cue: Cue, point: str) -> str:
    return f"{_time(cue.start_ms, point)} --> {_time(cue.end_ms, point)}"


def _time(ms: int, point: str) -> str:
    minutes, rest_ms = divmod(ms, 60_000)
    return f"{minutes // 60:02d}:{minutes % 60:02d}:{rest_ms // 1000:02d}{point}{rest_ms % 1000:03d}"


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
