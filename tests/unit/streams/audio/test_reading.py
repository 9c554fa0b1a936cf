"""Recordings are read as players read them: tags, joined files, wrong lengths, and the times of containers."""

import io
import struct
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from streams.audio.decode import AudioFile, open_file
from streams.models.protocol import Floats
from tests.audio import encoded, muxed
from topics.errors import AudioError
from topics.media import parse

ANY = parse("application/octet-stream")
RATE = 16_000
#: Seconds of sound and of near silence, by turns.
PATTERN = (1.0, 0.5, 1.0, 1.0)
#: FFmpeg's muxer and encoder, or libsndfile's format and subtype.
KINDS = {
    "WAV": ("WAV", "PCM_16"),
    "float WAV": ("WAV", "FLOAT"),
    "RF64": ("RF64", "PCM_24"),
    "Wave64": ("w64", "pcm_s16le"),
    "AIFF": ("AIFF", "PCM_16"),
    "AU": ("AU", "PCM_16"),
    "CAF": ("CAF", "PCM_16"),
    "ALAC in CAF": ("caf", "alac"),
    "Opus in CAF": ("", "recordings/opus.caf"),
    "FLAC": ("FLAC", "PCM_16"),
    "MP3": ("MP3", None),
    "MP2": ("mp2", "mp2"),
    "AAC": ("adts", "aac"),
    "AC-3": ("ac3", "ac3"),
    "WavPack": ("wv", "wavpack"),
    "Vorbis": ("OGG", "VORBIS"),
    "Opus": ("OGG", "OPUS"),
    "FLAC in Ogg": ("ogg", "flac"),
    "Speex": ("", "recordings/speex.ogg"),
    "memo": ("ipod", "aac"),
    "ALAC": ("ipod", "alac"),
    "fragments": ("mp4", "aac"),
    "QuickTime": ("mov", "pcm_s16le"),
    "WebM": ("webm", "libopus"),
    "Matroska": ("matroska", "aac"),
    "WMA": ("asf", "wmav2"),
}
FRAGMENTS = {"movflags": "frag_keyframe+empty_moov+default_base_moof", "frag_duration": "500000"}
ID3 = b"ID3\x04\0\0\0\0\x07\x68".ljust(10 + 1000, b"\0")
#: With a footer, and with a size that is too small or too large.
ID3S = (
    ID3,
    ID3[:5] + b"\x10" + ID3[6:] + b"3DI" + ID3[3:5] + b"\x10" + ID3[6:10],
    ID3[:8] + b"\3\0" + ID3[10:],
    ID3[:8] + b"\x0f\0" + ID3[10:],
    ID3[:6] + b"\1\0\0\0" + ID3[10:],
)
APE = b"APETAGEX" + struct.pack("<4I8x", 2000, 64, 0, 0x80000000) + bytes(32)
APE_AT_END = APE + APE[:23] + b"\x80" + bytes(8)
LYRICS = b"LYRICSBEGIN" + b"IND0000200LYR00005hello" + b"000034LYRICS200"
TAGS_AT_END = APE_AT_END + LYRICS + b"TAG".ljust(128, b"\0")


def sound(seconds: float = sum(PATTERN), rate: int = RATE, channels: int = 1) -> Floats:
    """Return a tone and near silence by turns, float32[n, channels]."""
    edges = np.cumsum((0, *PATTERN))
    at = np.arange(round(seconds * rate)) / rate
    loud = np.isin(np.searchsorted(edges, at, side="right") - 1, (0, 2))
    tone = np.where(loud, 0.5, 0.0005) * np.sin(2 * np.pi * 700 * at)
    return np.repeat(tone[:, None], channels, axis=1).astype(np.float32)


@cache
def made(kind: str, rate: int = RATE, channels: int = 1, gap: tuple[float, float] = (0.0, 0.0)) -> bytes:
    """Return the sound in a file of a kind; PyAV has no coder of two of them, so these files were made by ffmpeg."""
    muxer, coder = KINDS[kind]
    if not muxer:
        return (Path(__file__).parent / str(coder)).read_bytes()
    if kind == "AC-3":
        rate = 2 * RATE
    if muxer.isupper():
        return encoded(sound(rate=rate, channels=channels), rate, muxer, coder)
    options = FRAGMENTS if kind == "fragments" else None
    return muxed(sound(rate=rate, channels=channels), rate, muxer, coder, gap=gap, options=options)


def read(data: bytes, is_chunk: bool = False) -> tuple[AudioFile, list[float]]:
    """Return a file that was read to its end, and the seconds at which it becomes loud or quiet, up to its end."""
    with open_file(io.BytesIO(data), ANY, is_chunk=is_chunk) as audio:
        samples = np.concatenate(list(audio.blocks()))
    step = audio.rate // 50
    power = np.square(samples[: len(samples) // step * step]).reshape(-1, step).mean(axis=1)
    loud = [False, *(power > 0.01)]
    edges = [place / 50 for place, (one, two) in enumerate(pairwise(loud)) if one != two]
    return audio, [*edges, len(samples) / audio.rate]


def expected(*starts: float) -> list[float]:
    """Return the edges of a recording at each start."""
    return [start + edge for start in starts for edge in (0.0, *np.cumsum(PATTERN)[:-1])]


def check(data: bytes, *starts: float, slack: float = 0.1) -> AudioFile:
    audio, (*edges, end) = read(data)
    assert edges == pytest.approx(expected(*starts), abs=slack)
    assert end == pytest.approx(starts[-1] + sum(PATTERN), abs=slack)
    return audio


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_read_whole_and_without_a_warning(kind: str) -> None:
    audio = check(made(kind), 0.0)
    assert (audio.warning, audio.gaps) == (None, [])


@pytest.mark.parametrize("kind", KINDS)
def test_tags_decide_nothing(kind: str) -> None:
    """Not before a file, in any number, nor after it."""
    wanted = check(made(kind), 0.0).kind
    for data in (ID3 + made(kind), ID3S[1] + ID3 + made(kind), APE_AT_END + made(kind), made(kind) + TAGS_AT_END):
        audio = check(data, 0.0)
        assert (audio.kind, audio.warning) == (wanted, None)


@pytest.mark.parametrize("kind", ["MP3", "MP2", "AAC", "FLAC", "Vorbis", "WAV", "WebM"])
def test_audio_is_searched_behind_junk_and_wrong_tags(kind: str) -> None:
    junk = np.random.default_rng(1).bytes(5000).replace(b"\xff", b"")
    before = (b"\0", bytes(3000), b"HTTP/1.1 200 OK\r\n\r\n", junk, *ID3S, ID3 + bytes(900))
    for one in before:
        audio = check(one + made(kind), 0.0)
        assert audio.warning is None


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("between", [b"", TAGS_AT_END + ID3])
def test_joined_files_are_read_to_the_end(kind: str, between: bytes) -> None:
    """Also if the rate and the channels change, and if the first file is the longer one."""
    one, two = made(kind), made(kind, 24_000 if kind == "Opus" else 48_000, 2)
    for parts in ((one, one), (one, two), (two, one), (one, two, one)):
        starts = [sum(PATTERN) * place for place in range(len(parts))]
        audio = check(between.join(parts), *starts, slack=0.25)
        assert (audio.warning, audio.rate) == (None, read(parts[0])[0].rate)


def test_files_of_several_kinds_are_joined() -> None:
    for data in (made("Opus") + made("Vorbis"), made("AIFF") + made("WAV"), made("memo") + made("FLAC")):
        assert check(data, 0.0, sum(PATTERN)).warning is None


def test_unreadable_file_behind_another_is_a_warning() -> None:
    audio = check(made("FLAC") + made("FLAC")[:60], 0.0)
    assert audio.warning is not None
    assert audio.warning.startswith("another file begins in the data at 3.5 s, but ")


def field(data: bytes, name: bytes, place: int, value: bytes) -> bytes:
    at = data.index(name) + place
    return data[:at] + value + data[at + len(value) :]


#: The name after which the length stands, where, its bytes, their order, and bytes that it counts beside the samples.
LENGTHS = {
    "WAV": (b"data", 4, 4, "little", 0),
    "RF64": (b"ds64", 16, 8, "little", 0),
    "Wave64": (b"data", 16, 8, "little", 24),
    "AIFF": (b"SSND", 4, 4, "big", 8),
    "AU": (b".snd", 8, 4, "big", 0),
    "CAF": (b"data", 4, 8, "big", 4),
}


@pytest.mark.parametrize("kind", LENGTHS)
@pytest.mark.parametrize("length", ["zero", "least", "half", "nearly greatest", "greatest", "a second"])
def test_wrong_length_is_no_end(kind: str, length: str) -> None:
    """A recorder that crashed or writes to a pipe states none; one that forgot to correct it states too little."""
    name, place, width, order, others = LENGTHS[kind]
    whole, sample = made(kind), 3 if kind == "RF64" else 2
    most = 1 << 8 * width
    value = {
        "zero": 0,
        "least": others,
        "half": most // 2 - 37,
        "nearly greatest": most - 36,
        "greatest": most - 1,
        "a second": others + sample * RATE,
    }[length]
    data = field(whole, name, place, value.to_bytes(width, order))  # type: ignore[arg-type]
    if kind == "AIFF" and length != "a second":
        data = field(data, b"COMM", 10, bytes(4))
    audio = check(data, 0.0, slack=0.02)
    assert (audio.warning is not None) is (length == "a second")
    if length == "zero":
        # What comes after it is no audio, and not all that is empty has some.
        header = data[: whole.index(name) + place + width] if kind not in ("RF64",) else data[:0]
        for rest in (b"", b"LIST\4\0\0\0INFO") if kind == "WAV" else ():
            with pytest.raises(AudioError, match="holds no audio"):
                read(header + rest)


def test_what_follows_the_samples_is_no_audio() -> None:
    whole = made("WAV")
    for rest in (b"LIST\x04\0\0\0INFO", b"\0LIST\x04\0\0\0INFO", TAGS_AT_END, bytes(9999)):
        audio, edges = read(whole + rest)
        assert (audio.warning, edges[-1]) == (None, sum(PATTERN))


@pytest.mark.parametrize("kind", ["memo", "ALAC", "fragments", "WebM", "Matroska", "FLAC in Ogg", "WMA"])
def test_silence_stands_in_a_gap(kind: str) -> None:
    """Its ends are those of the coder's packets."""
    audio, edges = read(made(kind, gap=(1.25, 5.0)))
    assert edges == pytest.approx([0.0, 1.0, 6.5, 7.5, 8.5], abs=0.2)
    ((start, end),) = audio.gaps
    assert end - start == pytest.approx(5 * audio.rate, abs=audio.rate / 10)
    assert audio.silence_ms == pytest.approx(5000, abs=100)
    assert audio.warning is not None
    assert "has no audio from 1." in audio.warning


@pytest.mark.parametrize(("muxer", "coder"), [("mp4", "aac"), ("mov", "aac"), ("webm", "libopus"), ("matroska", "aac")])
def test_silence_stands_before_a_late_start(muxer: str, coder: str) -> None:
    """Of a file; the place of a chunk is its number."""
    data = muxed(sound(), RATE, muxer, coder, gap=(0.0, 3.0), video_s=7.0)
    audio, edges = read(data)
    assert edges == pytest.approx([3.0, 4.0, 4.5, 5.5, 6.5], abs=0.15)
    assert audio.silence_ms == pytest.approx(3000, abs=100)
    assert audio.warning is None
    assert read(data, is_chunk=True)[1] == pytest.approx([0.0, 1.0, 1.5, 2.5, 3.5], abs=0.15)


@pytest.mark.parametrize(("muxer", "coder"), [("ogg", "libopus"), ("matroska", "flac"), ("ipod", "aac")])
def test_excerpt_of_a_broadcast_begins_at_once(muxer: str, coder: str) -> None:
    audio, edges = read(muxed(sound(), RATE, muxer, coder, gap=(0.0, 7200.0)))
    assert edges == pytest.approx([0.0, 1.0, 1.5, 2.5, 3.5], abs=0.15)
    assert (audio.warning, audio.gaps) == (None, [])


def test_too_long_a_gap_names_both_ends() -> None:
    for gap, video_s in (((1.25, 700.0), 0.0), ((0.0, 700.0), 1.0)):
        data = muxed(sound(), RATE, "matroska", "flac", gap=gap, video_s=video_s)
        with pytest.raises(AudioError, match=r"it has no sound from (1\.\d to 70[12]\.\d|0\.0 to 700\.0) s; gaps of"):
            read(data)


def test_gaps_are_too_long_in_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streams.audio.decode.MOST_GAPS_S", 6)
    with pytest.raises(AudioError, match="of 6 s in sum"):
        read(made("Matroska", gap=(1.25, 4.0)) + made("Matroska", gap=(1.25, 4.0)))


@pytest.mark.parametrize("kind", ["AAC", "MP3", "Matroska", "memo"])
def test_silence_stands_for_damaged_packets(kind: str) -> None:
    """What comes after them keeps its time, if the container has times; nothing is lost without a word."""
    data = bytearray(made(kind))
    middle = data.find(b"mdat") + 4000 if kind == "memo" else len(data) // 2
    data[middle : middle + 300] = bytes(300)
    with open_file(io.BytesIO(data), ANY) as audio:
        length = sum(map(len, audio.blocks())) / audio.rate
    assert length == pytest.approx(sum(PATTERN), abs=0.2)
    assert audio.warning is not None
    assert "silence stands there" in audio.warning


def test_silence_of_amr_is_no_damage() -> None:
    """FFmpeg has a coder of AMR, but its decoder refuses the packets of silence."""
    head = b"\x3c" + bytes(31)
    quiet = b"\x7c"
    amr = muxed(sound(1.0, 8000), 8000, "3gp", "libopencore_amrnb")
    assert head[0] >> 3 & 15 < 8 <= quiet[0] >> 3 & 15
    with open_file(io.BytesIO(amr), ANY) as audio:
        whole = sum(map(len, audio.blocks()))
    at = amr.index(b"mdat") + 4
    size = 32
    assert amr[at] == head[0]
    silent = bytearray(amr)
    for packet in range(10, 30):
        silent[at + packet * size] = quiet[0]
    with open_file(io.BytesIO(silent), ANY) as audio:
        assert sum(map(len, audio.blocks())) == whole
    assert audio.warning is None
    assert audio.silence_ms == pytest.approx(400, abs=20)


def test_unfinished_mp4_is_named() -> None:
    memo = made("memo")
    with pytest.raises(AudioError, match=r"has no index \(moov\): it was cut off, or its recording never ended"):
        read(memo[: memo.index(b"moov") - 8])


def test_unknown_codec_is_named() -> None:
    data = field(made("float WAV"), b"fmt ", 8, b"\x77\x77")
    with pytest.raises(AudioError, match="the WAV file has audio of the codec unknown, which is not supported"):
        read(data)


@pytest.mark.parametrize(
    ("muxer", "coder", "name"),
    [
        ("mpegts", "aac", "an MPEG transport stream"),
        ("mpegts", "mp2", "an MPEG transport stream"),
        ("mpeg", "mp2", "an MPEG program stream"),
        ("avi", "mp2", "an AVI file"),
        ("flv", "aac", "an FLV file"),
    ],
)
def test_frames_in_pieces_are_not_taken_for_audio(muxer: str, coder: str, name: str) -> None:
    data = muxed(sound(rate=44_100), 44_100, muxer, coder)
    with pytest.raises(AudioError, match=f"not a supported audio file: it is {name}"):
        read(data)
