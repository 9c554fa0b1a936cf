"""Registration: what is learnt from a recording, what is stored, and what is refused."""

import asyncio
import io
import threading
import tracemalloc
from collections.abc import Iterator
from functools import partial
from typing import Any, BinaryIO

import numpy as np
import pytest

from streams.audio.decode import AudioFile
from streams.clients.embeddings import EmbeddingClient, EmbeddingModel
from streams.models.protocol import Floats
from streams.speakers import recording_reader
from streams.speakers.embedder import VoiceEmbedder
from streams.speakers.recording_reader import decode_passage
from streams.speakers.registered_speakers import SpeakerService
from streams.voice.speech_segments import RATE
from tests.audio import encoded
from tests.unit.streams.audio.test_decode import flac_claiming
from tests.unit.streams.clients.http_engine import Asked, reply
from tests.unit.streams.clocks import turn_clock
from tests.unit.streams.speakers.house import MODEL, ORGANIZATION, Here, House, heard, recorded, register, sent
from tests.unit.streams.voice.tones import Ear, talk
from tests.waiting import turn, until
from topics import media
from topics.errors import AudioError, AudioTooLong, EngineAway, RuleBroken, Unavailable
from topics.media import Media
from topics.ports.speakers import Profile

pytestmark = pytest.mark.slow

SPEECH = talk((0, 5.0))
PAUSES = talk((None, 1.0), (0, 2.0), (None, 3.0), (0, 1.0))


@pytest.fixture
def house() -> House:
    return House()


def learnt(data: bytes, house: House | None = None, **given: Any) -> tuple[House, Profile]:
    house = house or House()
    return house, house.run(lambda service: register(service, "Anna_Kim", data), **given)


def refused(data: bytes, kind: type[Exception], house: House | None = None, **given: Any) -> str:
    house = house or House()
    with pytest.raises(kind) as raised:
        learnt(data, house, **given)
    assert not house.store.of.get(ORGANIZATION)
    assert house.files.held == {}
    return str(raised.value)


def test_plain_recording_is_enrolled_unchanged() -> None:
    """It is sent unchanged."""
    house, profile = learnt(recorded(SPEECH))
    assert profile == Profile("Anna_Kim", 1, 5000, 1, True)
    (sample,) = house.store.of[ORGANIZATION]["Anna_Kim"].samples
    assert sample.vector.tolist() == pytest.approx([1, 0, 0, 0, 0], abs=0.01)
    assert (sample.model, sample.length_ms) == (MODEL, 5000)
    assert [asked.fields["file"] for asked in house.engine.asked] == [[recorded(SPEECH)]]


@pytest.mark.parametrize("kind", ["WAV", "FLAC"])
def test_short_recording_is_embedded_during_speech_detection(kind: str) -> None:
    house, asked = House(), threading.Event()

    class Waiting(Ear):
        def run(self, frames: Floats, state: Floats) -> tuple[Floats, Floats]:
            assert asked.wait(60)
            return super().run(frames, state)

    def answer(request: Asked) -> bytes:
        asked.set()
        return house.answer(request)

    house.engine.answer = answer
    learnt(recorded(SPEECH, kind), house, load_detector=Waiting)
    assert [len(heard(each)) for each in house.engine.asked] == [5 * RATE]


def test_pauses_are_removed_before_enrolment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plain WAV is not probed, because no decoder reads it."""
    monkeypatch.setattr(Here, "probe", None)
    house, profile = learnt(recorded(PAUSES))
    assert profile.length_ms == 7000
    assert len(heard(house.engine.asked[-1])) / RATE == pytest.approx(3.1, abs=0.15)


@pytest.mark.parametrize(("kind", "rate"), [("FLAC", 16_000), ("OGG", 16_000), ("MP3", 16_000), ("WAV", 44_100)])
def test_any_container_is_enrolled(kind: str, rate: int) -> None:
    samples = np.repeat(SPEECH, 3)[: 5 * rate] if rate != RATE else SPEECH
    data = recorded(samples, kind, rate)
    house, profile = learnt(data)
    assert profile.length_ms == pytest.approx(5000, abs=100)
    (sample,) = house.store.of[ORGANIZATION]["Anna_Kim"].samples
    assert sample.voice == f"{ORGANIZATION}/{sample.id}.{kind.lower()}"
    assert house.files.held == {sample.voice: data}


@pytest.mark.parametrize("kind", ["WAV", "FLAC", "AIFF", "CAF"])
def test_recording_that_was_cut_off_is_enrolled(kind: str) -> None:
    data = recorded(SPEECH, kind)
    _, profile = learnt(data[: len(data) * 4 // 5])
    assert 3500 < profile.length_ms < 4500


@pytest.mark.parametrize("kind", ["WAV", "FLAC"])
@pytest.mark.parametrize(("spoken", "said"), [(0.0, "0.0"), (0.5, "0.6"), (0.8, "0.9")])
def test_too_little_speech_is_rejected(kind: str, spoken: float, said: str) -> None:
    data = recorded(talk((None, 2.0), (0, spoken), (None, 2.0)), kind)
    message = refused(data, RuleBroken)
    assert message == f"the audio holds too little speech: {said} s, at least 1 s is needed"


@pytest.mark.parametrize("seconds", [1.0, 3.9])
def test_one_second_of_speech_is_enough(seconds: float) -> None:
    """Short recordings are analysed completely, then sent once."""
    house, profile = learnt(recorded(talk((0, seconds))))
    assert profile.length_ms == 1000 * seconds
    assert len(house.engine.asked) == 1


def test_header_over_ten_minutes_is_rejected_undecoded(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are neither decoded nor sent."""
    monkeypatch.setattr(recording_reader, "decode_recording", None)
    house = House()
    quiet = np.zeros(601 * 1000, np.float32)
    assert "longer than 600 s" in refused(recorded(quiet, "FLAC", 1000), AudioTooLong, house)
    assert "longer than 600 s" in refused(recorded(quiet, "WAV", 1000), AudioTooLong, house)


def test_over_ten_minutes_is_rejected_despite_lying_header() -> None:
    endless = flac_claiming(0, recorded(np.zeros(601 * 1000, np.float32), "FLAC", 1000))
    assert "longer than 600 s" in refused(endless, AudioTooLong)


def test_slow_decoding_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording_reader, "CPU_SECONDS", -1.0)
    assert "exceeded its CPU or memory limit" in refused(recorded(SPEECH, "FLAC"), AudioError)


def test_unavailable_engine_is_named(house: House) -> None:
    house.engine.answer = reply({}, 500)
    assert refused(recorded(SPEECH), EngineAway, house) == "Speaker API error: 500"
    assert refused(recorded(PAUSES), EngineAway, house) == "Speaker API error: 500"
    house.engine.answer = None
    assert "did not answer within" in refused(recorded(SPEECH), EngineAway, house, timeout_s=0.05)


def test_caller_fault_takes_precedence_over_engine_fault(house: House) -> None:
    house.engine.answer = reply({}, 500)
    refused(recorded(talk((None, 5.0))), RuleBroken, house)
    refused(b"RIFF0000WAVEfmt 0000\1\0" * 9, AudioError, house)


def test_voice_file_is_kept_only_on_request() -> None:
    house, _ = learnt(recorded(SPEECH), keep=False)
    (sample,) = house.store.of[ORGANIZATION]["Anna_Kim"].samples
    assert (sample.voice, house.files.held, house.store.reserved) == (None, {}, [])


def test_failed_file_write_stores_no_sample(house: House) -> None:
    house.files.down = True
    refused(recorded(SPEECH), Unavailable, house)
    assert len(house.store.reserved) == 1, "the note stays: something of the file may be there"


async def test_waiting_for_a_call_is_not_part_of_its_deadline(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    async with house.engine.running():
        client = EmbeddingClient(house.engine.address(timeout_s=60.0, limit=1))
        embedder = VoiceEmbedder(client)
        async with client.slots:
            embedding = asyncio.create_task(embedder.embed(talk((0, 1.0))))
            await until(lambda: client.slots._waiters)
            turn_clock(monkeypatch, 61.0)
            await turn()
        assert (await embedding).model == house.model
        await embedder.close()


async def test_concurrent_enrolments_over_limit_leave_nothing(house: House) -> None:
    """There was room when the work began, and none when it ended: 60 register at a time."""
    async with house.open() as service:
        all_of_them = (register(service, f"s{number}", recorded(SPEECH)) for number in range(60))
        found = await asyncio.gather(*all_of_them, return_exceptions=True)
    assert sum(isinstance(each, Profile) for each in found) == 50
    assert {str(each) for each in found if not isinstance(each, Profile)} == {"speaker_max_count(50) exceeded"}
    assert len(house.files.held) == 50
    assert house.store.reserved == []


async def test_too_many_waiting_recordings_are_rejected(house: House) -> None:
    house.engine.answer = None
    async with house.open() as service:
        tasks = [asyncio.create_task(register(service, "Anna", recorded(SPEECH))) for _ in range(8 + 64 + 1)]
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        with pytest.raises(Unavailable, match="too many such requests wait"):
            done.pop().result()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        house.engine.answer = house.answer
        await register(service, "Anna", recorded(SPEECH))


def test_samples_are_reenrolled_with_new_model(house: House) -> None:
    async def again(service: SpeakerService) -> Any:
        return await service.re_enroll(ORGANIZATION, "Anna"), await service.profiles(ORGANIZATION)

    for data in (recorded(PAUSES), recorded(SPEECH, "FLAC"), recorded(SPEECH)):
        house.run(partial(register, speaker="Anna", data=data))
    house.model = EmbeddingModel("other", "1" * 64)
    house.files.held.popitem()
    (found, (profile,)) = house.run(again)
    assert (found.done, found.left) == (2, 1)
    assert not profile.compatible
    samples = house.store.of[ORGANIZATION]["Anna"].samples
    assert [sample.model.name for sample in samples] == ["other", "other", "tones"]
    found, _ = house.run(again)
    assert (found.done, found.left) == (0, 1)
    house.engine.answer = reply({}, 500)
    with pytest.raises(EngineAway):
        house.run(again)


@pytest.mark.parametrize("kind", ["WAV", "FLAC"])
async def test_passages_are_enrolled_as_one_sample(kind: str) -> None:
    """The rate differs, and the recording continues after the last stretch."""
    house = House()
    data = recorded(talk((0, 3.0), (1, 3.0), (0, 3.0), (1, 30.0)), kind)
    spans = [(500, 2500), (6500, 8500)]
    async with house.open() as service:
        profile = await sent(
            lambda file: service.register_passage(ORGANIZATION, "Anna", file, f"audio/{kind.lower()}", spans), data
        )
    assert (profile.length_ms, profile.samples) == (4000, 1)
    (sample,) = house.store.of[ORGANIZATION]["Anna"].samples
    assert sample.vector.tolist() == pytest.approx([1, 0, 0, 0, 0], abs=0.01)
    assert [path.rpartition(".")[2] for path in house.files.held] == ["wav"]


def hour(source: BinaryIO, media: Media, *_: Any, **__: Any) -> AudioFile:
    """Open an hour of silence."""
    return AudioFile(RATE, 1, (np.zeros(60 * RATE, np.float32) for _ in range(60)), 3600)


def test_passage_of_long_recording_takes_little_memory() -> None:
    tracemalloc.start()
    try:
        wav = decode_passage(io.BytesIO(), media.parse("audio/wav"), [(3_500_000, 3_502_000)], hour, lambda: False)
        assert tracemalloc.get_traced_memory()[1] < 30e6
    finally:
        tracemalloc.stop()
    assert len(wav) == 44 + 2 * 2 * RATE


async def test_cancelled_registration_of_passage_stops_decoding(monkeypatch: pytest.MonkeyPatch) -> None:
    house, opened, cancelled = House(), threading.Event(), threading.Event()
    rest = iter([np.zeros(RATE, np.float32)] * 36_000)

    def blocks() -> Iterator[Floats]:
        opened.set()
        assert cancelled.wait(60)
        yield from rest

    def endless(source: BinaryIO, declared: Media) -> AudioFile:
        return AudioFile(RATE, 1, blocks(), 36_000)

    monkeypatch.setattr("tests.unit.streams.speakers.house.open_file", endless)
    async with house.open() as service:
        spans = [(35_999_000, 36_000_000)]
        learning = asyncio.create_task(
            sent(lambda file: service.register_passage(ORGANIZATION, "Anna", file, "audio/flac", spans), b"")
        )
        await asyncio.to_thread(opened.wait)
        learning.cancel()
        cancelled.set()
        await asyncio.wait([learning])
    assert learning.cancelled()
    assert next(rest, None) is not None


def test_passages_with_little_speech_or_damage_are_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    """And those that take too long to decode."""
    samples = talk((0, 3.0), (None, 5.0))
    house, data = House(), recorded(samples, "FLAC")
    broken = np.where(np.arange(len(samples)) < RATE, samples, np.float32(np.nan))

    def learn(data: bytes, span: tuple[int, int]) -> None:
        house.run(
            lambda service: sent(
                lambda file: service.register_passage(ORGANIZATION, "Anna", file, "application/octet-stream", [span]),
                data,
            )
        )

    with pytest.raises(RuleBroken, match="too little speech"):
        learn(data, (4000, 7000))
    with pytest.raises(AudioError):
        learn(encoded(broken, RATE, "WAV", "FLOAT"), (0, 8000))
    monkeypatch.setattr(recording_reader, "PASSAGE_CPU_SECONDS", -1.0)
    with pytest.raises(AudioError, match="exceeded its CPU or memory limit"):
        learn(data, (0, 3000))
    assert house.files.held == {}
