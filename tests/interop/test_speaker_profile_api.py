"""The vendor's `SpeakerProfileApi`, unmodified, against the speaker interface, by its host option alone."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.contract.api import silence, wav
from tests.contract.speakers import ENTRY, TURN, Speakers, recording, stretch, voice
from tests.interop.vendor import Said, VendorClient
from tests.process import ORG_KEY, ServiceProcess
from tests.recordings import ANNA, BERT, CLEO
from tests.stub_engines import SPEAKER, StubEngines

pytestmark = pytest.mark.slow

CLIENT = VendorClient("cochl", "2.0.1", "speakers.py")
REFUSED = "CochlSenseException"

Calls = Callable[..., list[Said]]


@pytest.fixture
def calls(service: ServiceProcess, engines: StubEngines) -> Iterator[Calls]:
    """Call methods of the client in sequence, with no speakers and healthy engines."""
    engines.heal()

    def told(*methods: tuple[str, ...], key: str = ORG_KEY) -> list[Said]:
        said = CLIENT.call(f"{service.url}/api/v2", key, json.dumps(methods))
        return msgspec.convert(said.value["said"], list[Said])

    with Speakers(service, ORG_KEY) as api:
        _emptied(api)
        yield told
        _emptied(api)
    engines.heal()


def _emptied(api: Speakers) -> None:
    for name in api.entries():
        api.remove(name)


@pytest.fixture
def anna(tmp_path: Path) -> str:
    return _written(tmp_path / "anna.wav", voice(ANNA))


def _written(file: Path, audio: bytes) -> str:
    file.write_bytes(audio)
    return str(file)


def test_speakers_are_added_recognised_and_removed(calls: Calls, anna: str, tmp_path: Path) -> None:
    bert = _written(tmp_path / "bert.flac", recording([stretch(BERT)], "FLAC"))
    parts = [stretch(ANNA, 5.0), stretch(CLEO), stretch(BERT, 5.0)]
    meeting = _written(tmp_path / "회의.ogg", recording(parts, "OGG"))
    said = calls(
        ("list_all_speakers",),
        ("add_new_voice", "Anna_Kim", anna),
        ("add_new_voice", "Bert", bert),
        ("add_new_voice", "Anna_Kim", anna),
        ("list_all_speakers",),
        ("recognize", meeting),
        ("remove", "Anna_Kim"),
        ("list_all_speakers",),
        ("recognize", meeting),
    )
    assert [one.raised for one in said] == [None] * 9, said
    values: list[Any] = [one.value for one in said]
    empty, first, other, second, both, known, _, rest, fewer = values
    assert empty == []
    assert first.keys() == ENTRY
    assert (first["samples"], second["samples"]) == (1, 2)
    assert both == [second, other]
    assert rest == [other]
    assert all(turn.keys() == TURN for turn in known["transcription"])
    assert _names(known) == ["Anna_Kim", "Unknown 0", "Bert"]
    assert _names(fewer) == ["Unknown 0", "Unknown 1", "Bert"]


def _names(recognition: Any) -> list[str]:
    return list(dict.fromkeys(turn["speaker_name"] for turn in recognition["transcription"]))


def test_wrong_key_raises_reason_phrase(calls: Calls, anna: str, service: ServiceProcess) -> None:
    methods = ("list_all_speakers",), ("add_new_voice", "Anna_Kim", anna), ("remove", "Anna_Kim"), ("recognize", anna)
    for key in ("no-key-of-this-service", service.key):
        said = calls(*methods, key=key)
        assert [one.raised for one in said] == [REFUSED] * 4
        assert ["Unauthorized" in one.message for one in said] == [True] * 4


def test_rule_errors_are_passed_through(calls: Calls, anna: str, tmp_path: Path) -> None:
    quiet = _written(tmp_path / "quiet.wav", wav(silence(3.0)))
    said = calls(
        ("add_new_voice", "Anna Kim", anna),
        ("remove", "Anna+Kim"),
        ("remove", "Nobody"),
        ("add_new_voice", "Anna_Kim", quiet),
        ("add_new_voice", "Anna_Kim", str(Path(__file__))),
        ("list_all_speakers",),
    )
    assert [one.raised for one in said] == [REFUSED] * 5 + [None]
    name = "speaker is invalid. only alphabet, number and underscore are allowed"
    for one, words in zip(said[:-1], (name, name, "speaker not found", "speech", "audio"), strict=True):
        assert words in one.message
    assert said[-1].value == []


def test_engine_failure_raises_reason_phrase(calls: Calls, anna: str, engines: StubEngines) -> None:
    engines.faults = {SPEAKER: 500}
    said = calls(("add_new_voice", "Anna_Kim", anna), ("recognize", anna))
    assert [one.raised for one in said] == [REFUSED] * 2
    assert ["Bad Gateway" in one.message for one in said] == [True] * 2
