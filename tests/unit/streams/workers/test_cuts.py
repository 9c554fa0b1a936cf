"""Raw PCM may be cut anywhere: the windows are those of one piece, also after a restart at any cursor."""

import re
from itertools import pairwise

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streams.audio.analysis import Analysis
from streams.audio.decode import decode_chunk, open_file
from streams.workers.progress import StreamProgress
from tests.audio import encoded, noise
from tests.unit.streams.audio.engines import Fingerprint
from tests.unit.streams.workers.asking import beginning
from topics.geometry import SESSIONS
from topics.media import parse
from topics.sessions.records import Cursor

RATE = 8000
SECONDS = 2
#: Audio by its form; of two channels, some blocks are cancelled.
_LEFT = noise(RATE * SECONDS, 1)
_STEREO = np.stack([_LEFT, -0.74 * _LEFT + 0.1 * noise(len(_LEFT), 2)], axis=1)
AUDIO = {
    "s16": (_LEFT * 32767).astype("<i2").tobytes(),
    "f32; channels=2": _STEREO.astype("<f4").tobytes(),
    "s24; channels=3": np.random.default_rng(3).integers(0, 256, RATE * SECONDS * 9, np.uint8).tobytes(),
}

BEGINNING = Cursor()


def raw(form: str) -> str:
    return f"audio/x-raw; rate={RATE}; format={form}"


def truth(form: str, data: bytes) -> bytes:
    analysis = Analysis(Fingerprint(), SESSIONS, RATE)
    return analysis.feed(decode_chunk(data, parse(raw(form))).samples) + analysis.finish()


def begun(declared: str, cursor: Cursor = BEGINNING, windows: int = 0) -> StreamProgress:
    begin = msgspec.structs.replace(beginning(Fingerprint(), declared), cursor=cursor, windows=windows)
    return StreamProgress(Fingerprint(), begin, open_file)


@pytest.mark.parametrize("form", list(AUDIO))
@settings(max_examples=20)
@given(st.data())
def test_windows_are_the_same_however_chunks_are_cut(form: str, data: st.DataObject) -> None:
    """Each step's cursor is enough to go on from there."""
    audio = AUDIO[form]
    places = sorted(data.draw(st.lists(st.integers(0, len(audio)), max_size=12)))
    near = data.draw(st.lists(st.integers(1, 5), max_size=3))
    places = sorted({0, *places, *(min(len(audio), place + step) for place in places for step in near), len(audio)})
    chunks = [audio[start:end] for start, end in pairwise(places)]
    stream, taken, packed = begun(raw(form)), 0, b""
    per_window = len(Fingerprint().manifest.tags)
    while taken < len(chunks):
        some = data.draw(st.integers(1, 4))
        scored = stream.take(chunks[stream.taken : stream.taken + some])
        assert scored.error is None
        assert scored.first * per_window <= len(packed)
        packed = packed[: scored.first * per_window] + scored.packed
        taken = scored.cursor.chunks
        if data.draw(st.booleans()):
            stream = begun(raw(form), scored.cursor, len(packed) // per_window)
    while stream.taken < len(chunks):
        assert stream.take(chunks[stream.taken :]).packed == b""
    assert packed + stream.finish().packed == truth(form, audio)


@pytest.mark.parametrize("form", list(AUDIO))
def test_sample_that_the_end_cuts_is_dropped(form: str) -> None:
    stream = begun(raw(form))
    packed = stream.take([AUDIO[form], b"\x01"]).packed
    assert packed + stream.finish().packed == truth(form, AUDIO[form])


def test_long_chunks_are_carried_too() -> None:
    """A chunk of more than one block is read in steps."""
    form, audio = "f32; channels=2", AUDIO["f32; channels=2"] * 6
    chunks = [audio[:100_001], audio[100_001:1_000_003], audio[1_000_003:]]
    stream, packed = begun(raw(form)), b""
    while stream.taken < len(chunks):
        packed += stream.take([] if stream.reading else chunks[stream.taken :]).packed
    assert packed + stream.finish().packed == truth(form, audio)


@pytest.mark.parametrize("kind", ["WAV", "FLAC", "OGG", "AIFF"])
def test_pieces_of_a_file_get_advice(kind: str) -> None:
    data = encoded(noise(RATE * 4), RATE, kind)
    error = begun(f"audio/{kind.lower()}").take([data[len(data) // 2 :]]).error
    assert error is not None
    # A page of Ogg tells what it is a piece of.
    cause = (
        "the Ogg file's header is damaged" if kind == "OGG" else "declared .* the data is not a supported audio file"
    )
    assert re.match(f"chunk 0: {cause}.*\\. Each chunk of a stream must be a file of its own", error)
    assert "open a session of type file" in error
