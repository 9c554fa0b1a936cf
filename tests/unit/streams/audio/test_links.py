"""Ogg files with damaged and missing pages, and several files in one: no audio is lost silently or comes too early."""

import io
from functools import cache

import numpy as np
import pytest

from streams.audio import links
from streams.audio.decode import AudioFile, decode_chunk, open_file
from streams.models.protocol import Floats
from tests.audio import RATE, encoded, noise, sine
from topics.errors import AudioError
from topics.media import parse

pytestmark = pytest.mark.slow

ANY = parse("application/octet-stream")
LOST = "the audio is damaged: a page of the Ogg file is damaged or missing"
CODERS = ("VORBIS", "OPUS")


@cache
def ogg(coder: str, seconds: int = 30, seed: int = 0) -> bytes:
    return encoded(0.5 * noise(seconds * RATE, seed), RATE, "OGG", coder)


def pages(data: bytes) -> list[bytes]:
    found = []
    while data:
        lengths = data[27 : 27 + data[26]]
        size = 27 + len(lengths) + sum(lengths)
        found.append(data[:size])
        data = data[size:]
    return found


def read(data: bytes) -> tuple[Floats, str, AudioFile]:
    """Return the samples, and the error after them or "", and the file."""
    blocks, fault = [np.empty(0, np.float32)], ""
    with open_file(io.BytesIO(data), ANY, block_samples=50_000) as audio:
        try:
            blocks.extend(audio.blocks())
        except AudioError as error:
            fault = str(error)
    return np.concatenate(blocks), fault, audio


@pytest.mark.parametrize("coder", CODERS)
def test_ogg_breaks_at_its_first_lost_page(coder: str) -> None:
    whole, wanted = pages(ogg(coder, 12)), decode_chunk(ogg(coder, 12), ANY).samples
    for lost in (4, len(whole) // 2, len(whole) - 1):
        before, page, after = whole[:lost], bytearray(whole[lost]), whole[lost + 1 :]
        damages = [b"".join((*before, *after))] if after else []
        # Its name, its numbers, its count of lengths, a length, and its audio.
        for place in (0, 5, 8, 15, 19, 23, 26, 27, len(page) // 2, len(page) - 1):
            flipped = page[:]
            flipped[place] ^= 0xFF
            damages.append(b"".join((*before, flipped, *after)))
        # This is all that libsndfile reads of a file that was cut off there.
        known, _, _ = read(b"".join(before))
        for damaged in damages:
            found, fault, audio = read(damaged)
            if after:
                assert (fault, audio.broken_at) == (LOST, len(found) / RATE)
            else:
                assert fault or audio.shortfall, "the mark of the end is lost"
            assert np.array_equal(found, known)
        assert np.abs(known - wanted[: len(known)])[:-500].max() < 1e-6
        assert abs(len(known) / len(wanted) - lost / len(whole)) < 0.15


@pytest.mark.parametrize("coder", CODERS)
def test_first_page_with_audio_may_not_be_lost(coder: str) -> None:
    """A gap before it is honest: a recording may begin amid a broadcast."""
    whole = pages(ogg(coder))
    page = bytearray(whole[3])
    page[0] ^= 0xFF
    assert LOST in read(b"".join((*whole[:3], page, *whole[4:])))[1]
    headers = 3 if coder == "VORBIS" and whole[2][6:14] == bytes(8) else 2
    found, fault, audio = read(b"".join((*whole[:headers], *whole[10:])))
    assert (fault, audio.shortfall) == ("", None)
    assert 0.5 < len(found) / RATE / 30 < 0.99


@pytest.mark.parametrize("coder", CODERS)
def test_junk_around_pages_is_no_damage(coder: str) -> None:
    data = ogg(coder)
    whole = pages(data)
    for junk in (bytes(100_000), bytes(500_000), b"TAG" + bytes(125), b"Ogg" * 30_000):
        for padded in (data + junk, b"".join((*whole[:9], junk, *whole[9:]))):
            found, fault, audio = read(padded)
            assert (len(found), fault, audio.shortfall) == (30 * RATE, "", None)


@pytest.mark.parametrize("kind", ["OGG VORBIS", "OGG OPUS", "FLAC PCM_16", "FLAC PCM_24"])
@pytest.mark.parametrize("between", [b"", bytes(5000)])
def test_files_in_a_row_are_read_to_the_end(kind: str, between: bytes) -> None:
    container, coder = kind.split()
    one, two, three = (encoded(0.5 * noise(s * RATE, s), RATE, container, coder) for s in (20, 4, 40))
    found, fault, audio = read(between.join((one, two, three)))
    assert (fault, audio.shortfall) == ("", None)
    assert np.array_equal(found, np.concatenate([decode_chunk(part, ANY).samples for part in (one, two, three)]))
    assert np.array_equal(decode_chunk(one + two, ANY).samples, found[: 24 * RATE])
    damaged = bytearray(three)
    damaged[len(damaged) // 2] ^= 0xFF
    found, fault, audio = read(one + bytes(damaged))
    assert fault.startswith("the audio is damaged: ")
    assert 25.0 < (audio.broken_at or 0.0) < 55.0
    other = encoded(sine(1.0, rate=8000), 8000, container, coder)
    found, fault, _ = read(one + other)
    assert (len(found), fault) == (20 * RATE, "the audio is damaged: its rate or its channels change")


@pytest.mark.parametrize("coder", CODERS)
def test_ogg_files_of_the_same_number_lose_nothing_silently(coder: str) -> None:
    """libsndfile takes the length from the last page with the file's number, here that of the shorter file."""
    data = ogg(coder, 60)
    whole = pages(data)
    shorter = b"".join(whole[: len(whole) * 5 // 6])
    assert read(data + shorter)[1] == "the audio is damaged: two files in it have the same serial number"
    found, fault, _ = read(data + data)
    assert (len(found), fault) == (120 * RATE, "")


def test_granules_beyond_the_audio_are_a_shortfall() -> None:
    """A recorder may leave out what it has lost, and number its pages without a gap."""
    whole = [bytearray(page) for page in pages(ogg("OPUS"))]
    for page in whole[len(whole) // 2 :]:
        page[6:14] = (int.from_bytes(page[6:14], "little") + 10 * 48_000).to_bytes(8, "little")
        page[22:26] = bytes(4)
        page[22:26] = naive_checksum(page).to_bytes(4, "little")
    found, fault, audio = read(b"".join(whole))
    assert (len(found), fault) == (30 * RATE, "")
    assert audio.shortfall == "the audio ends at 30.0 s, and its header says 40.0 s: it was cut off"


def naive_checksum(page: bytes | bytearray) -> int:
    """Return the CRC-32 of RFC 3533: not reflected, from 0, without a final inversion."""
    value = 0
    for byte in page:
        value ^= byte << 24
        for _ in range(8):
            value = (value << 1 ^ (0x04C11DB7 if value >> 31 else 0)) & 0xFFFFFFFF
    return value


def test_checksum_equals_reference() -> None:
    page = bytearray(pages(ogg("OPUS", 1))[2])
    assert links._is_intact(bytes(page))
    stored, page[22:26] = int.from_bytes(page[22:26], "little"), bytes(4)
    assert naive_checksum(page) == stored
