"""The vendor's `IntegratedApi`, unmodified, against the job interface, by its host option alone."""

import threading
from pathlib import Path
from typing import Any

import pytest

from tests.contract.api import Service, tone, wav
from tests.contract.jobs import SPEECH, Jobs
from tests.contract.speech import spoken
from tests.interop.vendor import VendorClient
from tests.stub_engines import CHAT, StubEngines
from tests.stub_engines import SPEECH as SPEECH_PATH
from tests.waiting import wait_for

pytestmark = pytest.mark.slow

CLIENT = VendorClient("cochl", "2.0.1", "integrated.py")


@pytest.fixture
def host(service: Service, engines: StubEngines) -> str:
    """The client's host, with healthy engines."""
    engines.heal()
    return f"{service.url}/api/v1"


@pytest.fixture
def talk(tmp_path: Path) -> str:
    file = tmp_path / "talk.wav"
    file.write_bytes(spoken())
    return str(file)


@pytest.fixture
def beep(tmp_path: Path) -> str:
    """A recording without speech."""
    file = tmp_path / "beep.wav"
    file.write_bytes(wav(tone(2.0)))
    return str(file)


def test_all_services_in_one_call(host: str, talk: str, service: Service) -> None:
    said = CLIENT.call(host, service.key, talk, "sound speech insights")
    assert said.raised is None, said.message
    value: Any = said.value
    assert value["accepted"]["status"] == "accepted"
    result = value["result"]
    entries = ("sound_event_detection", "speech_analysis", "audio_insights", "caption")
    assert [result[name]["status"] for name in entries] == ["success"] * 4
    # The engine's text contains `data: `, at which the client splits lines.
    assert "data: " in " ".join(segment["transcript"] for segment in result["speech_analysis"]["results"])
    assert result["metadata"]["audio"]["input"]["filename"] == "talk.wav"


def test_errors_raise_reason_phrases(
    host: str, beep: str, service: Service, poor_key: str, tmp_path: Path, engines: StubEngines
) -> None:
    noise = tmp_path / "noise.wav"
    noise.write_bytes(b"no audio at all")
    with Jobs(service, poor_key) as poor:
        wait_for(lambda: poor.file(wav(tone(2.0))).status_code == 402)
    refusals = {
        "Unauthorized": ("not-a-key-of-this-service", beep, "sound"),
        "Bad Request": (service.key, beep, "sound insights"),
        "Payment Required": (poor_key, beep, "sound"),
        "Unprocessable": (service.key, beep, "sound extra"),
        "Internal Server Error": (service.key, str(noise), "sound"),
    }
    for phrase, (key, file, wanted) in refusals.items():
        said = CLIENT.call(host, key, file, wanted)
        assert said.raised == "CochlSenseException"
        assert phrase in said.message


def test_unknown_job_raises_http_error(host: str, beep: str, service: Service) -> None:
    said = CLIENT.call(host, service.key, beep, "job 0123456789abcdefghijABCD")
    assert said.raised == "HTTPError"
    assert "404" in said.message


def test_failed_entries_raise_nothing(host: str, talk: str, service: Service, engines: StubEngines) -> None:
    engines.faults = {SPEECH_PATH: 500, CHAT: 503}
    value: Any = CLIENT.call(host, service.key, talk, "sound speech insights").value
    engines.heal()
    assert value["result"]["speech_analysis"] == {"status": "error", "error": "ASR Engine API error: 500"}
    assert value["result"]["audio_insights"] == {"status": "error", "error": "Caption API error: 503"}
    assert value["result"]["sound_event_detection"]["status"] == "success"


def test_deleted_job_has_no_result(host: str, talk: str, service: Service, engines: StubEngines) -> None:
    engines.faults = {SPEECH_PATH: "hang"}
    with Jobs(service) as jobs:
        job = jobs.accepted(Path(talk).read_bytes(), SPEECH)
        removal = threading.Timer(2.0, lambda: jobs.http.delete(f"/jobs/{job}", headers=jobs.keyed))
        removal.start()
        said = CLIENT.call(host, service.key, talk, f"job {job}")
        removal.join()
    engines.heal()
    assert (said.raised, said.value) == (None, {"result": None})
