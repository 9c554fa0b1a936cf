"""A session's `content_type`: one grammar for the edge, which rejects others, and the decoder.

    audio/<container>                                        a file, or chunks that are each a whole file
    audio/x-raw; rate=<Hz>; format=<format>[; channels=<n>]  PCM without a header, channels interleaved
    application/octet-stream                                 any container, recognised by its content

`format` is s or u with 8, 16, 24 or 32 bits, or f16 or f32, then `le` or `be` (default `le`).
"""

import re
from typing import Final, Literal

import msgspec

from topics.errors import BadRequest

Container = Literal[
    "wav", "mp3", "ogg", "flac", "aiff", "au", "caf", "mp4", "matroska", "asf", "aac", "ac3", "wavpack", "raw", "any"
]

MIN_RATE: Final = 1_000
MAX_RATE: Final = 384_000
MAX_CHANNELS: Final = 16

RAW: Final = "audio/x-raw"
_TYPES: Final[dict[Container, str]] = {
    "wav": "audio/wav audio/x-wav audio/wave audio/wavex audio/rf64",
    "mp3": "audio/mp3 audio/mpeg",
    "ogg": "audio/ogg audio/opus",
    "flac": "audio/flac audio/x-flac",
    "aiff": "audio/aiff audio/x-aiff",
    "au": "audio/au audio/basic",
    "caf": "audio/caf audio/x-caf",
    "mp4": "audio/mp4 audio/m4a audio/x-m4a audio/3gp audio/3gpp audio/3gpp2 video/mp4 video/3gpp video/quicktime",
    "matroska": "audio/webm audio/mka audio/matroska audio/x-matroska video/webm video/x-matroska",
    "asf": "audio/asf audio/wma audio/x-ms-wma video/x-ms-asf video/x-ms-wmv",
    "aac": "audio/aac audio/x-aac",
    "ac3": "audio/ac3",
    "wavpack": "audio/wavpack audio/x-wavpack audio/wv",
    "any": "application/octet-stream",
}
CONTAINERS: Final = {name: container for container, names in _TYPES.items() for name in names.split()}
_FORMAT: Final = re.compile(r"(?:[su](?:8|16|24|32)|f(?:16|32))(?:le|be)?")
_NUMBER: Final = re.compile(r"[0-9]{1,9}")


class Media(msgspec.Struct, frozen=True):
    """A parsed content type; the last three fields are set for raw PCM only."""

    #: Type without parameters, lower case, as shown in messages.
    declared: str
    container: Container
    #: Frames per second.
    rate: int = 0
    #: With its endianness, for example "s16le".
    sample_format: str = ""
    channels: int = 1


def parse(content_type: str) -> Media:
    """Parse a content type; raise BadRequest, with the field and the fault, if it is not supported."""
    declared, *rest = (part.strip() for part in content_type.lower().split(";"))
    if declared in CONTAINERS:
        return Media(declared, CONTAINERS[declared])
    if declared != RAW:
        raise _bad(f"{_quoted(declared)} is not supported; use {', '.join(CONTAINERS)} or {RAW}")
    return _raw(_parameters(rest))


def _raw(parameters: dict[str, str]) -> Media:
    unknown = sorted(parameters.keys() - {"rate", "format", "channels"})
    if unknown:
        raise _bad(f"{RAW} takes rate, format and channels, not {_quoted(unknown[0])}")
    return Media(
        RAW,
        "raw",
        rate=_number(parameters, "rate", MIN_RATE, MAX_RATE, " Hz"),
        sample_format=_sample_format(parameters),
        channels=_number(parameters, "channels", 1, MAX_CHANNELS) if "channels" in parameters else 1,
    )


def _parameters(parts: list[str]) -> dict[str, str]:
    parameters: dict[str, str] = {}
    for part in filter(None, parts):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or not name:
            raise _bad(f"{_quoted(part)} is not of the form name=value")
        if name in parameters:
            raise _bad(f"{_quoted(name)} appears twice")
        parameters[name] = value.strip('"')
    return parameters


def _sample_format(parameters: dict[str, str]) -> str:
    value = parameters.get("format", "")
    if value.startswith("f24"):
        # The vendor lists it, but there is no common encoding of 24-bit floats.
        raise _bad("format f24 has no defined encoding; send f32, s24 or u24")
    if not _FORMAT.fullmatch(value):
        raise _bad(f"format must be one of s8 u8 s16 u16 s24 u24 s32 u32 f16 f32 with le or be, not {_quoted(value)}")
    return value if value.endswith(("le", "be")) else f"{value}le"


def _number(parameters: dict[str, str], name: str, least: int, most: int, unit: str = "") -> int:
    value = parameters.get(name, "")
    if not _NUMBER.fullmatch(value) or not least <= int(value) <= most:
        raise _bad(f"{name} must be a whole number from {least} to {most}{unit}, not {_quoted(value)}")
    return int(value)


def _quoted(value: str) -> str:
    return repr(value[:40]) if value else "nothing"


def _bad(fault: str) -> BadRequest:
    return BadRequest(f"content_type: {fault}")
