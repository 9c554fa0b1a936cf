"""A session's `content_type`: one grammar for the edge, which rejects others, and the decoder.

    audio/<container>                                        a file, or chunks that are each a whole file
    audio/x-raw; rate=<Hz>; format=<format>[; channels=<n>]  PCM without a header, channels interleaved
    audio/pcm; rate=<Hz>[; format=<format>][; channels=<n>]  the same; by default s16le
    audio/L16; rate=<Hz>[; channels=<n>]                     the same as s16be (RFC 2586), and L8 as u8, L24 as s24be
    application/octet-stream                                 any container, recognised by its content

`format` is s or u with 8, 16, 24 or 32 bits, or f16 or f32, then `le` or `be` (default `le`). The names of ALSA and
GStreamer mean the same: S16_LE, FLOAT_LE, F32LE.
"""

import re
from functools import lru_cache
from typing import Final, Literal

import msgspec

from topics.errors import BadRequest

Container = Literal[
    "wav", "mp3", "ogg", "flac", "aiff", "au", "caf", "mp4", "matroska", "asf", "aac", "ac3", "wavpack", "raw", "any"
]

MIN_RATE: Final = 1_000
MAX_RATE: Final = 384_000
MAX_CHANNELS: Final = 16
#: Seconds of silence between two pieces of a recording, and in sum; more is no gap.
MOST_GAP_S: Final = 600
MOST_GAPS_S: Final = 3600

RAW: Final = "audio/x-raw"
#: The formats that types of raw PCM imply. The last ones (RFC 3551, 3190) take no other.
_RAW_TYPES: Final = {RAW: "", "audio/pcm": "s16le", "audio/l8": "u8", "audio/l16": "s16be", "audio/l24": "s24be"}
_LINEAR: Final = frozenset({"audio/l8", "audio/l16", "audio/l24"})


class FileKind(msgspec.Struct, frozen=True):
    """A container: its name for people, FFmpeg's name of its reader, and its content types."""

    name: str
    reader: str
    types: str


KINDS: Final[dict[Container, FileKind]] = {
    "wav": FileKind("WAV", "wav", "audio/wav audio/x-wav audio/wave audio/wavex audio/rf64 audio/vnd.wave"),
    "mp3": FileKind("MP3", "mp3", "audio/mp3 audio/mpeg audio/x-mp3 audio/x-mpeg"),
    "ogg": FileKind("Ogg", "ogg", "audio/ogg audio/opus audio/vorbis application/ogg video/ogg"),
    "flac": FileKind("FLAC", "flac", "audio/flac audio/x-flac"),
    "aiff": FileKind("AIFF", "aiff", "audio/aiff audio/x-aiff"),
    "au": FileKind("AU", "au", "audio/au audio/basic"),
    "caf": FileKind("CAF", "caf", "audio/caf audio/x-caf"),
    "mp4": FileKind(
        "MP4 (M4A, MOV, 3GP)",
        "mov",
        "audio/mp4 audio/m4a audio/x-m4a audio/3gp audio/3gpp audio/3gpp2 video/mp4 video/3gpp video/quicktime",
    ),
    "matroska": FileKind(
        "Matroska (MKA, WebM)",
        "matroska",
        "audio/webm audio/mka audio/matroska audio/x-matroska video/webm video/x-matroska",
    ),
    "asf": FileKind("ASF (WMA)", "asf", "audio/asf audio/wma audio/x-ms-wma video/x-ms-asf video/x-ms-wmv"),
    "aac": FileKind("AAC", "aac", "audio/aac audio/aacp audio/x-aac"),
    "ac3": FileKind("AC-3", "ac3", "audio/ac3"),
    "wavpack": FileKind("WavPack", "wv", "audio/wavpack audio/x-wavpack audio/wv"),
}
CONTAINERS: Final[dict[str, Container]] = {
    **{name: container for container, kind in KINDS.items() for name in kind.types.split()},
    "application/octet-stream": "any",
}
#: Bytes at the beginning of a file that identify its content type.
HEAD: Final = 12
#: How files of each content type begin: regular expressions in which a dot is any byte. The first that matches counts.
BEGINNINGS: Final = {
    "audio/wav": rb"(?:RIFF|RIFX|BW64)....WAVE|riff",
    "audio/rf64": rb"RF64....WAVE",
    "audio/aiff": rb"FORM....AIF[FC]",
    "audio/ogg": rb"OggS",
    "audio/flac": rb"fLaC",
    "audio/au": rb"\.snd",
    "audio/caf": rb"caff",
    "audio/webm": rb"\x1a\x45\xdf\xa3",
    "audio/x-ms-wma": rb"\x30\x26\xb2\x75",
    "audio/wavpack": rb"wvpk",
    # The first box of a QuickTime file; old files may have no `ftyp`.
    "audio/mp4": rb"....(?:ftyp|styp|moov|mdat|wide|free|skip)",
    "audio/ac3": rb"\x0b\x77",
    # Eleven bits of sync, then a known MPEG version and a layer from I to III.
    "audio/mp3": rb"\xff[\xe2-\xe7\xf2-\xf7\xfa-\xff]",
    # Twelve bits of sync and layer 0, which MPEG audio does not use.
    "audio/aac": rb"\xff[\xf0\xf1\xf8\xf9]",
}
_FORMAT: Final = re.compile(r"(?:[su](?:8|16|24|32)|f(?:16|32))(?:le|be)?")
_ALSA: Final = re.compile(r"(?:([su](?:16|32))_|([su]24)_3|(float)_)([lb]e)")
_NUMBER: Final = re.compile(r"[0-9]{1,9}")


class Media(msgspec.Struct, frozen=True):
    """A parsed content type; the last three fields are set for raw PCM only."""

    #: Type without parameters, lower case, as shown in messages; of raw PCM always `RAW`.
    declared: str
    container: Container
    #: Frames per second.
    rate: int = 0
    #: With its endianness, for example "s16le".
    sample_format: str = ""
    channels: int = 1

    @property
    def content_type(self) -> str:
        """The one way to write the type of raw PCM."""
        channels = f"; channels={self.channels}" if self.channels > 1 else ""
        return f"{RAW}; rate={self.rate}; format={self.sample_format}{channels}"

    @property
    def sample_bytes(self) -> int:
        """Bytes of one sample of raw PCM."""
        return int(self.sample_format[1:-2]) // 8

    @property
    def frame_bytes(self) -> int:
        """Bytes of one frame of raw PCM, which has a sample of every channel; 1 for a container, which has none."""
        return self.sample_bytes * self.channels if self.container == "raw" else 1


def is_raw(content_type: str) -> bool:
    """Return whether a content type, which may be faulty, is one of raw PCM."""
    return content_type.partition(";")[0].strip().lower() in _RAW_TYPES


def byte_rate(content_type: str) -> int:
    """Return the bytes a second of raw PCM, 0 for anything else."""
    if not is_raw(content_type):
        return 0
    try:
        declared = parse(content_type)
    except BadRequest:
        return 0
    return declared.rate * declared.frame_bytes


@lru_cache(maxsize=256)
def parse(content_type: str, rate: int | None = None) -> Media:
    """Parse a content type; raise BadRequest, with the field and the fault, if it is not supported.

    `rate` is the rate of raw PCM if the type does not tell it.
    """
    declared, *rest = (part.strip() for part in content_type.lower().split(";"))
    if declared in CONTAINERS:
        return Media(declared, CONTAINERS[declared])
    if declared not in _RAW_TYPES:
        raise _bad(f"{_quoted(declared)} is not supported; use {', '.join(CONTAINERS)} or {', '.join(_RAW_TYPES)}")
    parameters = _parameters(rest)
    if rate is not None:
        parameters.setdefault("rate", str(rate))
    return _raw(declared, parameters)


def _raw(declared: str, parameters: dict[str, str]) -> Media:
    names = ["rate", "channels"] if declared in _LINEAR else ["rate", "format", "channels"]
    unknown = sorted(parameters.keys() - set(names))
    if unknown:
        raise _bad(f"{declared} takes {', '.join(names[:-1])} and channels, not {_quoted(unknown[0])}")
    return Media(
        RAW,
        "raw",
        rate=_number(parameters, "rate", MIN_RATE, MAX_RATE, " Hz"),
        sample_format=_sample_format(parameters.get("format", _RAW_TYPES[declared])),
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


def _sample_format(value: str) -> str:
    if alsa := _ALSA.fullmatch(value):
        value = (alsa[1] or alsa[2] or "f32") + alsa[4]
    elif value in ("s24_le", "s24_be", "u24_le", "u24_be"):
        # ALSA's name for 24 bits within 32; S24_3LE has three bytes.
        raise _bad(f"format {value} has 24 bits in 4 bytes; send s32, which most devices record too, or s24")
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
