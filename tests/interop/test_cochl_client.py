"""The vendor's `cochl`, unmodified, works against this service by its host option alone, as the interface states."""

import subprocess
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import soundfile

from infra.examples import RECORDING
from tests.conftest import ROOT
from tests.contract.api import Service, tone, wav
from tests.contract.speakers import ENTRY, TURN, Speakers, recording, stretch, voice
from tests.contract.speech import spoken
from tests.documentation.pages import read
from tests.interop.environments import RUN_SECONDS, python
from tests.interop.vendor import said
from tests.process import ORG_KEY, ServiceProcess
from tests.recordings import ANNA, BERT, CLEO, SIREN
from tests.stub_engines import StubEngines

pytestmark = pytest.mark.slow

ALIAS = "/sense/api/v1"
UNKNOWN = "not-a-key-of-this-service"
FIRST, LAST = "1.0.13", "2.0.1"
RELEASES = pytest.mark.parametrize("version", [LAST, FIRST])
ADDED = "SpeakerProfileApi.add_new_voice"
ANALYSED = "IntegratedApi.analyze_file"
PREDICTED = "Client.predict"
LETTERS = "only alphabet, number and underscore are allowed"


@RELEASES
@pytest.mark.parametrize("form", ["wav", "ogg", "flac"])
def test_predict_names_the_sound(version: str, form: str, service: Service, tmp_path: Path) -> None:
    path = tmp_path / f"siren.{form}"
    if form == "ogg":
        path.write_bytes(SIREN.read_bytes())
    else:
        soundfile.write(path, *soundfile.read(SIREN, dtype="int16"))
    (told,) = said(version, (service.url + ALIAS, service.key, PREDICTED, str(path)))
    assert told.raised is None, told.message
    windows = told.value["windows"]
    # The alias serves the later interface: windows of 2 s every second.
    assert [(window["start_time"], window["end_time"]) for window in windows] == [(n, n + 2) for n in range(4)]
    assert all("Siren" in {tag["name"] for tag in window["sound_tags"]} for window in windows)
    assert "At 0-5s, [Siren] was detected" in told.value["summary"]
    assert "Siren" in told.value["tags"]


@pytest.mark.both_logs
@RELEASES
def test_file_over_one_mebibyte_needs_raised_kafka_limit(
    version: str, request: pytest.FixtureRequest, service: Service, tmp_path: Path
) -> None:
    """These clients do not split it. Kafka topics default to smaller records unless a setting raises the limit."""
    (tmp_path / "long.wav").write_bytes(wav(tone(40.0)))
    (told,) = said(version, (service.url + ALIAS, service.key, PREDICTED, str(tmp_path / "long.wav")))
    assert (told.raised is None) is (request.node.callspec.params["service"] == "embedded"), told.message


@RELEASES
def test_documentation_example_prints_events(version: str, service: Service, tmp_path: Path) -> None:
    blocks = pairwise(read(ROOT / "docs" / "sessions.md").blocks())
    ((example, printed),) = [(block.text, after.text) for block, after in blocks if "cochl.sense" in block.text]
    for place, ours in ("http://127.0.0.1:8000", service.url), ("esp_...", service.key):
        example = example.replace(place, ours)
    soundfile.write(tmp_path / "recording.wav", *soundfile.read(RECORDING, dtype="int16"))
    command: list[str | Path] = [python("cochl", version), "-W", "ignore", "-c", example]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=RUN_SECONDS)
    assert sorted(done.stdout.splitlines()) == sorted(printed.splitlines()), done.stderr


def test_refusals_raise_the_clients_exceptions(service: Service, tmp_path: Path) -> None:
    audio, text = str(tmp_path / "a.wav"), str(tmp_path / "a.txt")
    Path(audio).write_bytes(wav(tone(2.5)))
    Path(text).write_text("no audio at all")
    api, people, sounds = f"{service.url}/api/v1", f"{service.url}/api/v2", [True, False, False]
    trials: list[tuple[tuple[object, ...], str]] = [
        # Statement 2: the reason phrase, and a sentence about support.
        ((api, UNKNOWN, ANALYSED, audio, sounds, {}), "Unauthorized"),
        ((api, service.key, ANALYSED, audio, sounds, {"audio_insights": True}), "Bad Request"),
        ((api, service.key, ANALYSED, text, sounds, {}), "Internal Server Error"),
        ((service.url + ALIAS, UNKNOWN, PREDICTED, audio), "Unauthorized"),
        ((people, UNKNOWN, "SpeakerProfileApi.list_all_speakers"), "Unauthorized"),
        # Statement 3: the service's messages about speakers are passed through.
        ((people, ORG_KEY, ADDED, "no name!", audio), f"speaker is invalid. {LETTERS}"),
        ((api, ORG_KEY, "CustomSoundApi.upload", "Baby_tears", audio), ""),
        ((api, service.key, "IntegratedApi.get_completed_result", "0123456789abcdefghijABCD"), ""),
    ]
    *told, custom, missing = said(LAST, *(call for call, _ in trials))
    assert missing.raised == "HTTPError"
    assert custom.raised == "CochlSenseException"
    assert "earshot models train-tag" in custom.message
    for (call, message), one in zip(trials[:-2], told, strict=True):
        assert (one.raised, one.message) == ("CochlSenseException", message)
        if call[2] == ANALYSED:
            phrase, sentence = one.text.split("\n")
            assert phrase == message
            assert "contact" in sentence


def test_all_services_in_one_call(service: Service, engines: StubEngines, tmp_path: Path) -> None:
    engines.heal()
    (tmp_path / "talk.wav").write_bytes(spoken())
    jobs = f"{service.url}/api/v1", service.key
    (accepted,) = said(LAST, (*jobs, ANALYSED, str(tmp_path / "talk.wav"), [True, True, True], {}))
    assert accepted.value["status"] == "accepted"
    (done,) = said(LAST, (*jobs, "IntegratedApi.get_completed_result", accepted.value["job_id"]))
    result = done.value
    entries = ("sound_event_detection", "speech_analysis", "audio_insights", "caption")
    assert [result[name]["status"] for name in entries] == ["success"] * 4
    # The engine's text contains `data: `, at which the client splits lines.
    assert "data: " in " ".join(segment["transcript"] for segment in result["speech_analysis"]["results"])
    assert result["metadata"]["audio"]["input"]["filename"] == "talk.wav"


def test_speakers_are_added_recognised_and_removed(
    service: ServiceProcess, engines: StubEngines, tmp_path: Path
) -> None:
    engines.heal()
    parts = [stretch(ANNA, 5.0), stretch(CLEO), stretch(BERT, 5.0)]
    anna, bert, meeting = (str(tmp_path / name) for name in ("anna.wav", "bert.flac", "회의.ogg"))
    Path(anna).write_bytes(voice(ANNA))
    Path(bert).write_bytes(recording([stretch(BERT)], "FLAC"))
    Path(meeting).write_bytes(recording(parts, "OGG"))
    calls = (
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
    with Speakers(service, ORG_KEY) as api:
        emptied(api)
        people = f"{service.url}/api/v2", ORG_KEY
        told = said(LAST, *((*people, f"SpeakerProfileApi.{method}", *given) for method, *given in calls))
        emptied(api)
    assert [one.raised for one in told] == [None] * 9, told
    empty, first, other, second, both, known, _, rest, fewer = (one.value for one in told)
    assert empty == []
    assert first.keys() == ENTRY
    assert (first["samples"], second["samples"]) == (1, 2)
    assert both == [second, other]
    assert rest == [other]
    assert all(turn.keys() == TURN for turn in known["transcription"])
    assert names(known) == ["Anna_Kim", "Unknown 0", "Bert"]
    assert names(fewer) == ["Unknown 0", "Unknown 1", "Bert"]


def emptied(api: Speakers) -> None:
    for name in api.entries():
        api.remove(name)


def names(recognition: Any) -> list[str]:
    return list(dict.fromkeys(turn["speaker_name"] for turn in recognition["transcription"]))
