"""Content types: every documented value is understood, everything else is refused by name."""

from __future__ import annotations

import pytest

from topics.errors import BadRequest
from topics.media import CONTAINERS, MAX_CHANNELS, MAX_RATE, MIN_RATE, Media, parse


@pytest.mark.parametrize(("declared", "container"), CONTAINERS.items())
def test_containers(declared: str, container: str) -> None:
    assert parse(declared) == Media(declared, container)  # type: ignore[arg-type]
    assert parse(f" {declared.upper()} ; codecs=x").container == container


@pytest.mark.parametrize(
    ("text", "rate", "sample_format", "channels"),
    [
        ("audio/x-raw; rate=44100; format=s16le", 44100, "s16le", 1),
        ("audio/x-raw;rate=22050;format=f32", 22050, "f32le", 1),
        ("audio/x-raw; rate = 8000 ; format = u24be ; channels = 2;", 8000, "u24be", 2),
        ('Audio/X-Raw; format="S24"; rate="16000"', 16000, "s24le", 1),
        (f"audio/x-raw; rate={MIN_RATE}; format=u8; channels={MAX_CHANNELS}", MIN_RATE, "u8le", MAX_CHANNELS),
        (f"audio/x-raw; rate={MAX_RATE}; format=f16be", MAX_RATE, "f16be", 1),
    ],
)
def test_raw(text: str, rate: int, sample_format: str, channels: int) -> None:
    assert parse(text) == Media("audio/x-raw", "raw", rate, sample_format, channels)


@pytest.mark.parametrize("kind", ["s16", "s24", "s32", "u16", "u24", "u32", "f16", "f32", "s8", "u8"])
@pytest.mark.parametrize("order", ["le", "be", ""])
def test_every_sample_format(kind: str, order: str) -> None:
    assert parse(f"audio/x-raw; rate=16000; format={kind}{order}").sample_format == kind + (order or "le")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "nothing is not supported"),
        ("audio/midi", "'audio/midi' is not supported"),
        ("text/plain", "'text/plain' is not supported"),
        ("audio/x-raw", "rate must be"),
        ("audio/x-raw; format=s16", "rate must be a whole number from 1000 to 384000 Hz, not nothing"),
        ("audio/x-raw; rate=0; format=s16", "rate must be"),
        ("audio/x-raw; rate=999; format=s16", "rate must be"),
        ("audio/x-raw; rate=384001; format=s16", "rate must be"),
        ("audio/x-raw; rate=44.1; format=s16", "rate must be"),
        ("audio/x-raw; rate=-8000; format=s16", "rate must be"),
        ("audio/x-raw; rate=٤٤١٠٠; format=s16", "rate must be"),
        ("audio/x-raw; rate=99999999999999999999; format=s16", "rate must be"),
        ("audio/x-raw; rate=16000", "format must be"),
        ("audio/x-raw; rate=16000; format=s12", "format must be"),
        ("audio/x-raw; rate=16000; format=f64le", "format must be"),
        ("audio/x-raw; rate=16000; format=f24le", "format f24 has no defined encoding"),
        ("audio/x-raw; rate=16000; format=s16; channels=0", "channels must be"),
        ("audio/x-raw; rate=16000; format=s16; channels=17", "channels must be"),
        ("audio/x-raw; rate=16000; format=s16; layout=planar", "not 'layout'"),
        ("audio/x-raw; rate=16000; rate=8000; format=s16", "'rate' is there twice"),
        ("audio/x-raw; rate; format=s16", "'rate' is not of the form name=value"),
    ],
)
def test_refused(text: str, fault: str) -> None:
    with pytest.raises(BadRequest) as refused:
        parse(text)
    assert str(refused.value).startswith("content_type: ")
    assert fault in str(refused.value)
