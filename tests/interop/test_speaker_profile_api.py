"""The vendor's `SpeakerProfileApi`, unmodified, against the speaker interface, by its host option alone."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.contract.speakers import ENTRY, TURN, Speakers, recording, stretch, voice
from tests.interop.vendor import Said, VendorClient
from tests.process import ORG_KEY, ServiceProcess
from tests.recordings import ANNA, BERT, CLEO
from tests.stub_engines import StubEngines

pytestmark = pytest.mark.slow

CLIENT = VendorClient("cochl", "2.0.1", "speakers.py")

Calls = Callable[..., list[Said]]


@pytest.fixture
def calls(service: ServiceProcess, engines: StubEngines) -> Iterator[Calls]:
    """Call methods of the client in sequence, with no speakers and healthy engines."""
    engines.heal()

    def told(*methods: tuple[str, ...]) -> list[Said]:
        said = CLIENT.call(f"{service.url}/api/v2", ORG_KEY, json.dumps(methods))
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
