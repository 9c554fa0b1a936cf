"""Profiles, removal, the sweep, the names of a job's speakers, and the nearest mean direction that names them."""

import asyncio
import time
from functools import partial
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from streams.clients.embeddings import EmbeddingModel, VoiceEmbedding
from streams.models.protocol import Floats
from streams.speakers import embedder
from streams.speakers.matching import Match, match, names_of
from streams.speakers.registered_speakers import SpeakerService
from streams.speakers.speaker_store import EnrolledSpeaker, VoiceSample
from streams.voice.speech_segments import RATE
from tests.unit.streams.clients.http_engine import reply
from tests.unit.streams.clocks import turn_clock
from tests.unit.streams.speakers.house import MODEL, ORGANIZATION, House, recognize, recorded, register
from tests.unit.streams.voice.tones import talk
from topics.errors import DirectoryDown, EngineAway, Unavailable

SPEECH = recorded(talk((0, 5.0)))
OTHER = EmbeddingModel("other", "1" * 64)


@pytest.fixture
def house() -> House:
    """Anna is registered."""
    house = House()
    house.run(lambda service: register(service, "Anna", SPEECH))
    house.engine.asked.clear()
    return house


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine does not make an engine late."""
    monkeypatch.setattr(embedder, "ASK_SECONDS", 60.0)


def compatible(house: House, **given: Any) -> list[bool]:
    profiles = house.run(lambda service: service.profiles(ORGANIZATION), **given)
    return [profile.compatible for profile in profiles]


def test_known_model_is_not_requested(house: House) -> None:
    assert compatible(house, model=MODEL) == [True]
    assert compatible(house, model=OTHER) == [False]
    assert house.engine.asked == []


def test_engine_model_is_requested_once(house: House) -> None:
    async def scene(service: SpeakerService) -> list[bool]:
        asked = [service.profiles(ORGANIZATION) for _ in range(5)]
        return [profile.compatible for profiles in await asyncio.gather(*asked) for profile in profiles]

    assert house.run(scene) == [True] * 5
    assert len(house.engine.asked) == 1
    house.model = OTHER
    assert compatible(house) == [False]
    house.model = msgspec.structs.replace(MODEL, sha256="2" * 64)
    assert compatible(house) == [False], "the same name, other weights"


async def test_unavailable_engine_is_not_asked_again_soon(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then the model of the last sample counts as the current one."""
    house.engine.answer = lambda asked: turn_clock(monkeypatch, embedder.ASK_SECONDS)
    async with house.open() as service:
        for _ in range(3):
            (profile,) = await service.profiles(ORGANIZATION)
            assert profile.compatible
        assert len(house.engine.asked) == 1
        house.engine.answer = house.answer
        house.model = OTHER
        now = time.monotonic() + 61
        monkeypatch.setattr("streams.speakers.embedder.time.monotonic", lambda: now)
        (profile,) = await service.profiles(ORGANIZATION)
        assert not profile.compatible


def test_kept_files_are_deleted_after_keeping_is_disabled(house: House) -> None:
    house.run(lambda service: service.remove(ORGANIZATION, "Anna"), keep=False)
    assert (house.files.held, house.store.noted) == ({}, [])


def test_failed_file_deletion_is_retried_by_sweep(house: House) -> None:
    house.files.down = True
    with pytest.raises(Unavailable, match=r"^the speaker is gone; a voice file will be deleted as soon as"):
        house.run(lambda service: service.remove(ORGANIZATION, "Anna"))
    assert list(house.store.of[ORGANIZATION]) == []
    house.run(lambda service: service.sweep())
    assert len(house.files.held) == len(house.store.noted) == 1
    house.files.down = False
    house.run(lambda service: service.sweep())
    assert (house.files.held, house.store.noted) == ({}, [])


def test_undeletable_file_does_not_block_sweep(house: House) -> None:
    house.run(lambda service: register(service, "Bob", SPEECH))
    stuck, other = house.files.held
    house.store.noted += [stuck, other]
    house.files.stuck.add(stuck)
    house.run(lambda service: service.sweep())
    assert (list(house.files.held), house.store.noted) == ([stuck], [stuck])


def test_sweep_survives_unavailable_database(house: House) -> None:
    house.store.down = True
    house.run(lambda service: service.sweep())


def names(house: House, *voices: Any) -> Any:
    def warn(fault: str) -> None:
        house.warnings.append(fault)

    return house.run(lambda service: service.identification.names(ORGANIZATION, voices, warn))


def test_job_speakers_are_named(house: House) -> None:
    nothing = np.zeros(0, np.float32)
    found = names(house, talk((1, 3.0)), nothing, talk((0, 3.0)), talk((2, 0.4)))
    assert [name for name, _ in found] == ["Unknown 0", "Unknown 1", "Anna", "Unknown 2"]
    assert [score for _, score in found] == pytest.approx([-1.0, -1.0, 1.0, -1.0], abs=0.01)
    assert len(house.engine.asked) == 2


def test_job_speakers_have_their_display_names(house: House) -> None:
    shown = house.run(lambda service: service.name(ORGANIZATION, "Anna", "Anna Müller"))
    assert (shown.name, shown.display_name) == ("Anna", "Anna Müller")
    assert [name for name, _ in names(house, talk((0, 3.0)))] == ["Anna Müller"]


def test_outdated_speakers_are_warned_about_in_job_and_log(house: House) -> None:
    names(house, talk((0, 3.0)))
    with capture_logs() as told:
        house.run(lambda service: service.warn_of_outdated())
    assert (house.warnings, told) == ([], [])
    house.model = EmbeddingModel("other", "cd" * 32)
    assert names(house, talk((0, 3.0))) == [("Unknown 0", -1.0)]
    with capture_logs() as told:
        house.run(lambda service: service.warn_of_outdated())
    (warning,) = house.warnings
    assert house.run(lambda service: service.outdated()) == warning
    assert warning.startswith("1 of 1 registered speakers may not be recognised")
    assert [(one["log_level"], one["fault"]) for one in told] == [("warning", warning)]


@pytest.mark.parametrize("away", ["store", "engine"])
def test_start_survives_failed_outdated_check(house: House, away: str) -> None:
    house.store.down = away == "store"
    if away == "engine":
        house.engine.answer = reply({}, 500)
    with capture_logs() as told:
        house.run(lambda service: service.warn_of_outdated())
    assert [one["event"] for one in told] == []


def test_engine_is_not_called_without_registered_speakers() -> None:
    house = House()
    assert compatible(house) == []
    assert names(house, np.ones(RATE, np.float32)) == [("Unknown 0", -1.0)]
    assert house.engine.asked == []


def test_nothing_works_without_engine_or_database(house: House) -> None:
    voice = talk((0, 3.0))
    house.engine.answer = reply({}, 500)
    with pytest.raises(EngineAway):
        names(house, voice)
    house.store.down = True
    with pytest.raises(DirectoryDown):
        names(house, voice)
    for deed in (partial(register, speaker="Bob"), recognize):
        with pytest.raises(DirectoryDown):
            house.run(partial(deed, data=SPEECH))
    assert len(house.files.held) == 1, "Anna's, and no other"


MODELS = (EmbeddingModel("m", "a" * 64), EmbeddingModel("m", "b" * 64))


def unit(seed: int, dimension: int = 4) -> Floats:
    vector = np.random.default_rng(seed).normal(size=dimension)
    made: Floats = (vector / np.linalg.norm(vector)).astype(np.float32)
    return made


def enrolled(name: str, *samples: tuple[int, int]) -> EnrolledSpeaker:
    """Return a speaker with samples (seed of the vector, number of the model)."""
    made = tuple(VoiceSample(f"{n}", unit(seed), MODELS[model], 1000) for n, (seed, model) in enumerate(samples))
    return EnrolledSpeaker(name, 1, made)


SAMPLES = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 1)), min_size=1, max_size=4)


@given(asked=st.integers(0, 50), rosters=st.lists(SAMPLES, max_size=5), threshold=st.floats(-0.99, 0.99))
@settings(max_examples=60, deadline=None)
def test_nearest_speaker_of_same_model_matches(
    asked: int, rosters: list[list[tuple[int, int]]], threshold: float
) -> None:
    speakers = [enrolled(f"s{n}", *samples) for n, samples in enumerate(rosters)]
    found = match(VoiceEmbedding(unit(asked), MODELS[0]), speakers, threshold)
    scores = {}
    for n, samples in enumerate(rosters):
        known = [unit(seed).astype(float) for seed, model in samples if model == 0]
        if known:
            mean = np.mean(known, axis=0)
            scores[f"s{n}"] = float(mean @ unit(asked).astype(float) / np.linalg.norm(mean))
    if not scores:
        assert found == Match(None, -1.0)
        return
    assert found.score == pytest.approx(max(scores.values()), abs=1e-5)
    assert (found.name is not None) == (found.score >= threshold)
    if found.name is not None:
        assert scores[found.name] == pytest.approx(max(scores.values()), abs=1e-5)


def test_cancelling_or_mismatched_samples_match_nobody() -> None:
    samples = (VoiceSample("1", unit(1), MODELS[0], 1), VoiceSample("2", -unit(1), MODELS[0], 1))
    for direction, speaker in ((unit(1), EnrolledSpeaker("Anna", 1, samples)), (unit(1, 7), enrolled("Anna", (1, 0)))):
        assert match(VoiceEmbedding(direction, MODELS[0]), [speaker], -0.9) == Match(None, -1.0)


def test_strangers_are_numbered_from_zero_and_names_may_repeat() -> None:
    found = [Match(None, 0.1), Match("Anna", 0.9), Match(None, -1.0), Match("Anna", 0.7)]
    assert names_of(found) == ["Unknown 0", "Anna", "Unknown 1", "Anna"]
    assert names_of([]) == []
