"""The interface's statements about the vendor's client that depend on the service, with the vendor's own client."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.contract.api import Service, tone, wav
from tests.contract.speech import spoken
from tests.interop.vendor import VendorClient
from tests.process import ORG_KEY
from tests.stub_engines import StubEngines

pytestmark = pytest.mark.slow

CLIENT = VendorClient("cochl", "2.0.1", "described.py")

Said = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory, service: Service, engines: StubEngines) -> Said:
    """Return the results of all trials, run in one process."""
    engines.heal()
    folder: Path = tmp_path_factory.mktemp("recordings")
    (folder / "a.wav").write_bytes(wav(tone(2.5)))
    (folder / "a.txt").write_text("no audio at all")
    (folder / "talk.wav").write_bytes(spoken())
    given = {"service": service.url, "key": service.key, "org_key": ORG_KEY, "folder": str(folder)}
    value: Said = CLIENT.call(json.dumps(given)).value
    return value


@pytest.mark.parametrize(
    ("trial", "message"),
    [
        # Statement 2: the reason phrase, and a sentence about support.
        ("analysis, wrong key", "Unauthorized"),
        ("analysis, bad options", "Bad Request"),
        ("analysis, no audio", "Internal Server Error"),
        ("prediction, wrong key", "Unauthorized"),
        ("speaker, wrong key", "Unauthorized"),
        # Statement 3: the service's messages about speakers are passed through.
        ("speaker, bad name", "speaker is invalid. only alphabet, number and underscore are allowed"),
    ],
)
def test_refusals_raise_the_clients_exception(trial: str, message: str, said: Said) -> None:
    assert (said[trial]["raised"], said[trial]["message"]) == ("CochlSenseException", message)
    if trial.startswith("analysis"):
        phrase, sentence = said[trial]["text"].split("\n")
        assert phrase == message
        assert "contact" in sentence


def test_unknown_job_is_an_error_of_http(said: Said) -> None:
    assert said["result of an unknown job"]["raised"] == "HTTPError"


def test_all_services_in_one_call(said: Said) -> None:
    value = said["all services"]["value"]
    assert value["accepted"]["status"] == "accepted"
    result = value["result"]
    entries = ("sound_event_detection", "speech_analysis", "audio_insights", "caption")
    assert [result[name]["status"] for name in entries] == ["success"] * 4
    # The engine's text contains `data: `, at which the client splits lines.
    assert "data: " in " ".join(segment["transcript"] for segment in result["speech_analysis"]["results"])
    assert result["metadata"]["audio"]["input"]["filename"] == "talk.wav"


def test_custom_sounds_are_rejected_with_alternative(said: Said) -> None:
    assert said["custom sound"]["raised"] == "CochlSenseException"
    assert "earshot models train-tag" in said["custom sound"]["message"]
