"""Checks raw PCM before it is stored: it must not be a container, and its floats must be plausible.

A sign of a container has more than 40 bits, so that no samples show one by chance. The header of a frame of MPEG audio
has fewer, so four must follow each other.
"""

import re
from typing import Final

from streams.audio import pcm
from topics.errors import AudioError
from topics.media import Media

#: Bytes at the beginning that may show a container: three of the longest frames of MPEG audio, and a header.
HEAD: Final = 3 * 8192 + 8
#: The longest frame of raw PCM that a constant signal repeats, which frames of MPEG audio do not.
_LONGEST_PERIOD: Final = 8
#: What the data is, the content type to declare ("" if none is supported), and how it begins.
_SIGNS: Final = [
    (name, declare, re.compile(sign, re.DOTALL))
    for name, declare, sign in (
        ("a WAV file", "audio/wav", rb"(?:RIFF|RIFX|RF64|BW64)....WAVE|riff\x2e\x91\xcf\x11"),
        ("an AVI file", "", rb"RIFF....AVI "),
        ("an AIFF file", "audio/aiff", rb"FORM....AIF[FC]"),
        ("an Ogg file", "audio/ogg", rb"OggS\x00[\0-\x07]"),
        ("a FLAC file", "audio/flac", rb"fLaC[\0\x80]\0\0\x22"),
        (
            "a file with an ID3 tag, usually MP3",
            "audio/mp3",
            rb"ID3[\x02-\x04][\0\x01][\0\x20\x40\x60\x80\xa0\xc0\xe0][\0-\x7f]{4}",
        ),
        ("a Matroska or WebM file", "audio/webm", rb"\x1a\x45\xdf\xa3.{1,60}?(?:webm|matroska)"),
        (
            "an MP4 file",
            "audio/mp4",
            rb"\0\0..(?:(?:ftyp|styp)[ -~]{4}|moof\0\0\0\x10mfhd|moov\0\0..mvhd|wide\0...mdat)",
        ),
        ("an AU file", "audio/au", rb"\.snd\0\0......\0\0\0[\x01-\x1b]\0[\0-\x06]..\0\0\0[\x01-\x10]"),
        ("a CAF file", "audio/caf", rb"caff\0\x01\0\0"),
        ("a WMA file", "audio/x-ms-wma", rb"\x30\x26\xb2\x75\x8e\x66\xcf\x11"),
        ("a WavPack file", "audio/wavpack", rb"wvpk..[\0-\x0f]\0[\x02-\x10]\x04"),
        ("an AMR file", "", rb"#!AMR(?:-WB)?\n"),
        ("an FLV file", "", rb"FLV\x01[\x01\x04\x05]\0\0\0\x09"),
        ("an MPEG program stream", "", rb"\0\0\x01\xba[\x21\x44]\0[\x01\x04]\0[\x01\x04-\x07]"),
        ("an MPEG transport stream", "", rb"\x47\x40[\0\x11]\x10.{184}\x47.{187}\x47"),
    )
]
#: kbit/s of MPEG audio, by (version 1, layer 2 or 3), and Hz of version 1.
_BIT_RATES: Final = {
    (True, 2): (32, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384),
    (True, 3): (32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320),
    (False, 2): (8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
    (False, 3): (8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
}
_RATES: Final = (44100, 48000, 32000)
_SYNC: Final = re.compile(rb"\xff[\xe0-\xff]")


def container_of(head: bytes) -> tuple[str, str] | None:
    """Return what begins with `head`, and its content type ("" if the service has none), or None for samples."""
    signed = ((name, declare) for name, declare, sign in _SIGNS if sign.match(head))
    return next(signed, None) or _framed(head[:HEAD])


def first_container(data: bytes, end: int) -> tuple[int, str] | None:
    """Return where the first file of a supported container begins before `end`, and its content type; None without."""
    # A tag says nothing about what follows it.
    signed = [(sign.search(data), declare) for name, declare, sign in _SIGNS if declare and "tag" not in name]
    found = [(sign.start(), declare) for sign, declare in signed if sign]
    first = min([end, *(at for at, _ in found)])
    for sync in _SYNC.finditer(data, 0, first):
        at = sync.start()
        if (framed := _framed(data[at : at + HEAD])) is not None:
            return at, framed[1] or "audio/mp3"
    return next(((at, declare) for at, declare in found if at == first < end), None)


def check_beginning(declared: Media, head: bytes) -> None:
    """Check that raw PCM does not begin like a container, as far as `head` shows it.

    Raises:
        AudioError: it does; the message names the container and what to declare.
    """
    if (found := container_of(head)) is not None:
        name, declare = found
        advice = f"declare {declare}" if declare else "decode it, or send it in another container"
        raise AudioError(f"declared {declared.declared}, which has no header, but the data is {name}: {advice}")


def check_floats(declared: Media, data: bytes) -> None:
    """Check whole samples of raw PCM.

    Raises:
        AudioError: a float is NaN, infinite or far above full scale.
    """
    if declared.sample_format.startswith("f"):
        pcm.decode(data, declared.sample_format, 1)


def _framed(head: bytes) -> tuple[str, str] | None:
    """Return the name and type of MPEG audio if four frames of one kind follow each other."""
    at, kinds = 0, set[tuple[str, int, int]]()
    for _ in range(4):
        frame = _frame(head[at : at + 6])
        if frame is None:
            return None
        at += frame[0]
        kinds.add(frame[1])
    is_constant = any(head[period:at] == head[: at - period] for period in range(1, _LONGEST_PERIOD + 1))
    if len(kinds) > 1 or is_constant:
        return None
    kind = kinds.pop()[0]
    return f"{kind} audio", "audio/mp3" if kind == "MP3" else "audio/aac" if kind == "AAC" else ""


def _frame(header: bytes) -> tuple[int, tuple[str, int, int]] | None:
    """Return the length in bytes and the kind of a frame of MP3, MP2 or ADTS (ISO/IEC 11172-3, 13818-3, 13818-7)."""
    if len(header) < 6 or header[0] != 0xFF or header[1] & 0xE0 != 0xE0:
        return None
    version, layer, second = header[1] >> 3 & 3, 4 - (header[1] >> 1 & 3), header[2]
    if layer == 4:  # ADTS
        length = (header[3] & 3) << 11 | header[4] << 3 | header[5] >> 5
        rate = second >> 2 & 15
        return (length, ("AAC", header[1], rate)) if version & 2 and rate < 13 and length > 7 else None
    bits, rate = second >> 4, second >> 2 & 3
    if version == 1 or layer == 1 or not 0 < bits < 15 or rate == 3:
        return None
    first = version == 3
    slots = 72 if not first and layer == 3 else 144
    hertz = _RATES[rate] >> (0 if first else 1 if version == 2 else 2)
    length = slots * 1000 * _BIT_RATES[first, layer][bits - 1] // hertz + (second >> 1 & 1)
    return length, (f"MP{layer}", header[1], rate)
