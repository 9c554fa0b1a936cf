"""Registering and recognising voices: every row of part C's tables, caps under races, and isolation."""

import sqlite3
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import count, groupby
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.contract.api import RATE, silence, tone, wav
from tests.contract.jobs import SPEECH, Jobs
from tests.contract.speakers import (
    ENTRY,
    TURN,
    Organization,
    Speakers,
    data,
    made,
    recording,
    refused,
    stretch,
    voice,
)
from tests.process import ServiceProcess
from tests.recordings import ANNA, BERT, CLEO
from tests.stub_engines import SPEAKER, StubEngines

NAMES = count()
TOO_LONG = "audio length is longer than 10 minutes"


@pytest.fixture
def organization(service: ServiceProcess, engines: StubEngines) -> Iterator[Organization]:
    """An unshared organization, with healthy engines."""
    engines.heal()
    yield made(service, f"org-{next(NAMES)}")
    engines.heal()


@pytest.fixture
def other(service: ServiceProcess) -> Organization:
    return made(service, f"other-{next(NAMES)}")


@pytest.fixture
def api(service: ServiceProcess, organization: Organization) -> Iterator[Speakers]:
    with Speakers(service, organization.key) as speakers:
        yield speakers


def test_voices_are_registered_and_listed(api: Speakers) -> None:
    assert data(api.listed()) == []
    entry = data(api.add("Anna_Kim", voice(ANNA, 0.0, 4.0)))
    assert entry.keys() == ENTRY
    assert (entry["speaker"], entry["samples"], entry["is_compatible"]) == ("Anna_Kim", 1, True)
    assert entry["total_length"] == pytest.approx(4.5, abs=0.01)
    registered = datetime.fromisoformat(entry["created_at"])
    assert abs(datetime.now(UTC) - registered) < timedelta(minutes=2)
    again = data(api.add("Anna_Kim", voice(ANNA, 4.0, 3.0)))
    assert (again["samples"], again["created_at"]) == (2, entry["created_at"])
    assert again["total_length"] == pytest.approx(8.0, abs=0.01)
    data(api.add("Bert", recording([stretch(BERT, 0.0, 5.0)], "FLAC"), filename="b.flac"))
    data(api.add("anna_kim", voice(ANNA)))  # names are case-sensitive
    assert [entry["speaker"] for entry in data(api.listed())] == ["Anna_Kim", "Bert", "anna_kim"]
    assert api.entries()["Anna_Kim"] == again


def test_audio_over_ten_minutes_is_rejected(api: Speakers) -> None:
    long = np.zeros(601 * RATE, np.int16)
    for form in ("WAV", "FLAC"):
        refused(api.add("Anna", recording([long], form)), 200, TOO_LONG)
    refused(api.recognize(recording([long], "FLAC")), 200, TOO_LONG)
    message = refused(api.add("Anna", recording([long[: 595 * RATE]], "FLAC")), 200)
    assert "speech" in message


def test_audio_with_too_little_speech_is_rejected(api: Speakers) -> None:
    for audio in (silence(5.0), tone(5.0), silence(3.0) + stretch(ANNA, 1.0, 0.6).tobytes() + silence(3.0)):
        assert "speech" in refused(api.add("Anna", wav(audio)), 200)
    for call in (lambda audio: api.add("Anna", audio), api.recognize):
        assert "audio" in refused(call(b"no audio at all"), 200)
    assert data(api.listed()) == []
    assert api.turns(wav(silence(5.0))) == []


def test_sample_limit_holds_under_concurrency(api: Speakers) -> None:
    audio = voice(ANNA, 0.0, 2.0)
    with ThreadPoolExecutor(24) as pool:
        answers = list(pool.map(lambda _: api.add("Anna", audio), range(24)))
    told = Counter((answer.status_code, answer.json()["error"]) for answer in answers)
    assert told == {(200, ""): 20, (200, "voice_max_count(20) exceeded"): 4}
    assert api.entries()["Anna"]["samples"] == 20


@pytest.mark.parametrize("fault", [302, "cut"])
def test_unavailable_speaker_engine_returns_502(api: Speakers, engines: StubEngines, fault: int | str) -> None:
    audio = voice(ANNA)
    engines.faults[SPEAKER] = fault
    refused(api.add("Anna", audio), 502, "speaker service unavailable")
    refused(api.recognize(audio), 502, "recognition service unavailable")
    assert data(api.listed()) == []
    engines.heal()
    assert data(api.add("Anna", audio))["samples"] == 1


#: Names of the three speakers of `conversation` if none is registered.
STRANGERS = {"Unknown 0", "Unknown 1", "Unknown 2"}


def conversation() -> bytes:
    """Return Anna, Cleo, Bert, and Anna again."""
    parts = [stretch(ANNA, 7.0, 4.0), stretch(CLEO, 6.0, 4.0), stretch(BERT, 6.0, 4.0), stretch(ANNA, 11.0, 3.0)]
    return recording(parts)


def enroll(api: Speakers) -> None:
    """Register Anna and Bert from audio outside the conversation."""
    for start in (0.0, 3.0):
        data(api.add("Anna_Kim", voice(ANNA, start, 3.0)))
        data(api.add("Bert", voice(BERT, start, 3.0)))


def test_recognition_names_registered_speakers(api: Speakers, organization: Organization) -> None:
    enroll(api)
    turns = api.turns(conversation())
    assert all(turn.keys() == TURN for turn in turns)
    assert "ask" in " ".join(turn["transcript"] for turn in turns)
    assert [turn["idx"] for turn in turns] == list(range(len(turns)))
    assert in_order(turns, "speaker_name") == ["Anna_Kim", "Unknown 0", "Bert", "Anna_Kim"]
    assert in_order(turns, "speaker_tag") == [0, 1, 2, 0]
    for turn in turns:
        start, end = turn["first_word_start_msec"], turn["last_word_end_msec"]
        who = {0: "Anna_Kim", 1: "Unknown 0", 2: "Bert", 3: "Anna_Kim"}[(start + end) // 2 // 4500]
        assert turn["speaker_name"] == who
        assert 0 <= start < end <= 17_500
        assert turn["first_word_start_time"] == f"00:{start // 1000:02}.{start % 1000 // 10:02}"
        assert turn["speaker_is_unlabeled"] is False
        known = turn["speaker_name"] in ("Anna_Kim", "Bert")
        assert turn["org_pub_id"] == (organization.id if known else "")
    scores = {turn["speaker_name"]: turn["speaker_score"] for turn in turns}
    assert scores["Unknown 0"] < min(scores["Anna_Kim"], scores["Bert"]) <= 1.0


def in_order(turns: list[dict[str, Any]], field: str) -> list[Any]:
    return [value for value, _ in groupby(turn[field] for turn in turns)]


def test_speakers_are_isolated_by_organization(api: Speakers, service: ServiceProcess, other: Organization) -> None:
    enroll(api)
    before = data(api.listed())
    with Speakers(service, other.key) as foreign:
        assert data(foreign.listed()) == []
        absent = foreign.remove("Nobody")
        assert foreign.remove("Anna_Kim").content == absent.content
        refused(absent, 200, "speaker not found")
        assert foreign.re_enroll("Anna_Kim").content == foreign.re_enroll("Nobody").content
        strangers = foreign.turns(conversation())
        assert {turn["speaker_name"] for turn in strangers} == STRANGERS
        assert {turn["speaker_score"] for turn in strangers} == {-1.0}
        # The same name in another organization is another speaker.
        assert data(foreign.add("Anna_Kim", voice(CLEO)))["samples"] == 1
        assert data(foreign.remove("Anna_Kim")) == {"speaker": "Anna_Kim"}
        assert data(foreign.listed()) == []
    assert data(api.listed()) == before


@pytest.mark.both_logs
def test_jobs_name_registered_speakers(
    api: Speakers, service: ServiceProcess, organization: Organization, engines: StubEngines
) -> None:
    enroll(api)
    asked = {**SPEECH, "speaker_profile": True}
    key = service.project("p", organization.id)
    with Jobs(service, key) as jobs, Jobs(service) as foreign:
        # The engine recognised words only where the first speaks.
        named = names(jobs.result(conversation(), asked))
        assert named.keys() == {"Anna_Kim"}
        assert named["Anna_Kim"] > 0
        assert names(jobs.result(conversation(), SPEECH)).keys() == {"Unknown 0"}
        assert names(foreign.result(conversation(), asked)).keys() == {"Unknown 0"}
        engines.faults[SPEAKER] = 500
        result = jobs.result(conversation(), asked)
    assert result["speech_analysis"]["status"] == "success"
    assert names(result).keys() == {"Unknown 0"}
    assert any("speakers were not named" in warning for warning in result["metadata"]["warnings"])


def names(result: dict[str, Any]) -> dict[str, float]:
    return {segment["speaker_name"]: segment["speaker_score"] for segment in result["speech_analysis"]["results"]}


def test_kept_voices_are_reenrolled_for_new_model(api: Speakers, engines: StubEngines) -> None:
    enroll(api)
    engines.sha256 = "f" * 64
    data(api.add("Cleo", voice(CLEO)))
    compatible = {name: entry["is_compatible"] for name, entry in api.entries().items()}
    assert compatible == {"Anna_Kim": False, "Bert": False, "Cleo": True}
    assert {turn["speaker_name"] for turn in api.turns(conversation())} == {"Unknown 0", "Cleo", "Unknown 1"}
    assert data(api.re_enroll("Anna_Kim")) == {"speaker": "Anna_Kim", "done": 2, "left": 0}
    assert data(api.re_enroll("Anna_Kim")) == {"speaker": "Anna_Kim", "done": 0, "left": 0}
    assert api.entries()["Anna_Kim"]["is_compatible"] is True
    assert "Anna_Kim" in {turn["speaker_name"] for turn in api.turns(conversation())}
    refused(api.re_enroll("Nobody"), 200, "speaker not found")


def test_removed_speaker_leaves_no_trace(api: Speakers, service: ServiceProcess) -> None:
    name, audio = "Persephone_Quillfeather", unique(ANNA)
    data(api.add(name, audio))
    data(api.add("Bert", voice(BERT)))
    with sqlite3.connect(service.data / "earshot.db") as database:
        query = "SELECT vector FROM samples JOIN speakers ON speaker_id = speakers.id WHERE name = ?"
        (vector,) = database.execute(query, (name,)).fetchone()
    database.close()
    assert len(vector) == 4 * 384
    clues = {"name": name.encode(), "vector": vector[64:192], "voice": audio[40_000:40_064]}
    assert {what for what, clue in clues.items() if found(service.data, clue)} == set(clues)
    assert data(api.remove(name)) == {"speaker": name}
    assert {what: found(service.data, clue) for what, clue in clues.items()} == {what: [] for what in clues}
    assert api.entries().keys() == {"Bert"}
    assert name not in service.log.read_text(errors="replace")


def unique(reader: Path) -> bytes:
    """Return 5 s of a reader that no other file contains, bit for bit."""
    samples = stretch(reader, 0.0, 5.0)
    return recording([samples + np.random.default_rng().integers(-9, 10, len(samples), np.int16)])


def found(folder: Path, clue: bytes) -> list[str]:
    """Return the files under a folder that contain some bytes."""
    assert clue
    return [str(path) for path in folder.rglob("*") if path.is_file() and clue in content(path)]


def content(path: Path) -> bytes:
    """Return the content of a file; nothing if the service has deleted it meanwhile."""
    with suppress(FileNotFoundError):
        return path.read_bytes()
    return b""
