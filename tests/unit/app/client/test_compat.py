"""The vendor's client as described: its values, and its behaviour at the service's edge."""

import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from starlette.responses import Response

from earshot_client import compat
from earshot_client.compat import (
    APIConfig,
    APIConfigFromJson,
    Client,
    CochlSenseException,
    EventDetectionResult,
    IntegratedApi,
    IntegratedApiOptions,
    SensitivityConfig,
    SensitivityScale,
    SoundTag,
    SpeakerProfileApi,
    WindowResult,
)
from tests.contract.api import tone, wav
from tests.unit.app.client.edge import Edge
from tests.unit.app.conftest import KEY, OPTIONS, ORG_KEY, House
from tests.unit.app.jobs.conftest import sounds
from topics.errors import AudioError
from topics.jobs.options import Service


def result(*windows: str) -> EventDetectionResult:
    """Return windows of 2 s every second, each given by its tags."""
    events = [
        WindowResult(start, start + 2, [SoundTag(name, 0.9) for name in (names.split() or ["Others"])])
        for start, names in enumerate(windows)
    ]
    return EventDetectionResult("s", events, 1)


@pytest.mark.parametrize(
    ("config", "stretches"),
    [
        (APIConfig(), ["0-2s, [Dog]", "1-4s, [Siren]", "3-5s, [Dog]"]),
        (APIConfig(default_interval_margin=1), ["0-2s, [Dog]", "1-4s, [Siren]", "3-5s, [Dog]"]),
        (APIConfig(default_interval_margin=2), ["0-5s, [Dog]", "1-4s, [Siren]"]),
        (APIConfig(tag_interval_margin={"Dog": 2}), ["1-4s, [Siren]", "0-5s, [Dog]"]),
        (APIConfig(enabled_tags=["Siren"]), ["1-4s, [Siren]"]),
    ],
)
def test_summary_has_line_per_sound_interval(config: APIConfig, stretches: list[str]) -> None:
    lines = result("Dog", "Siren", "Siren", "Dog").to_summarized_result(config).splitlines()
    assert lines == [f"At {stretch} was detected" for stretch in stretches]


def test_results_convert_to_dictionaries() -> None:
    found = result("Dog Siren").to_dict(APIConfig(enabled_tags=["Dog"]))
    window = {"start_time": 0, "end_time": 2, "sound_tags": [{"name": "Dog", "probability": 0.9}]}
    assert found == {"session_id": "s", "window_results": [window]}
    assert str(result("Dog").window_results[0]) == str(window)


def test_configuration_is_read_from_file(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    content = {
        "sensitivity_control": {"default_sensitivity": -1, "tag_sensitivity": {"Dog": 2}},
        "result_summary": {"default_interval_margin": 3, "tag_interval_margin": {"Dog": 1}},
        "tag_filter": {"enabled_tags": ["Dog"]},
    }
    path.write_text(json.dumps(content))
    config = APIConfigFromJson(str(path))
    assert (config.sensitivity.default, config.sensitivity.by_tags) == (
        SensitivityScale.HIGH,
        {"Dog": SensitivityScale.VERY_LOW},
    )
    assert (config.default_interval_margin, config.tag_interval_margin, config.enabled_tags) == (3, {"Dog": 1}, ["Dog"])
    path.write_text("{")
    with pytest.raises(ValueError, match="not JSON"):
        APIConfigFromJson(str(path))
    with pytest.raises(FileNotFoundError):
        APIConfigFromJson(str(tmp_path / "none.json"))


def test_file_prediction(url: str, house: House, tmp_path: Path) -> None:
    path = tmp_path / "street.wav"
    path.write_bytes(wav(tone(40.0)))  # more than one chunk
    config = APIConfig(
        host=f"{url}/sense/api/v1",
        sensitivity=SensitivityConfig(SensitivityScale.LOW, {"Siren": SensitivityScale.VERY_HIGH}),
    )
    client = Client(KEY, config)
    events = client.predict(str(path)).events
    [session] = house.sessions.sessions.values()
    assert len(session.chunks) > 1
    assert (session.opened.default_sensitivity, session.opened.tags_sensitivity) == (1, {"Siren": -2})
    assert [window.start_time for window in events.window_results] == list(range(39))
    assert "Dog_bark" in [tag.name for tag in client.get_official_tags()]


def test_host_defaults_to_environment(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EARSHOT_URL", url)
    assert Client(KEY).get_official_tags()
    assert SpeakerProfileApi(ORG_KEY).list_all_speakers() == []


def test_job_runs_with_selected_options_and_is_read_with_key(edge: Edge, tmp_path: Path) -> None:
    path = tmp_path / "street.wav"
    path.write_bytes(wav(tone(1.0)))
    house = House(msgspec.structs.replace(OPTIONS, job_reads_need_key=True))
    edge.serve(house)
    api = IntegratedApi(KEY, host=f"{edge.url}/api/v1")
    job = api.analyze_file(str(path), IntegratedApiOptions(True, False, False))["job_id"]
    accepted = house.jobs.jobs[job].accepted
    assert accepted is not None
    assert accepted.options.services == (Service.SOUND,)
    house.jobs.perform(job, Service.SOUND, sounds("Siren"), audio_ms=2000)
    assert api.get_completed_result(job)["sound_event_detection"]["status"] == "success"
    house.prober.failure = AudioError("not a supported audio file")
    with pytest.raises(CochlSenseException) as refusal:
        api.analyze_file(str(path), IntegratedApiOptions())
    assert refusal.value.message == "Internal Server Error"


@pytest.mark.parametrize(
    ("status", "tries", "call"),
    [
        (502, 1, lambda url, path: SpeakerProfileApi(ORG_KEY, url).add_new_voice("Kim", path)),
        (504, 1, lambda url, path: SpeakerProfileApi(ORG_KEY, url).add_new_voice("Kim", path)),
        (502, 1, lambda url, path: SpeakerProfileApi(ORG_KEY, url).recognize(path)),
        (503, 1, lambda url, path: SpeakerProfileApi(ORG_KEY, url).remove("Kim")),
        (503, 6, lambda url, path: SpeakerProfileApi(ORG_KEY, url).recognize(path)),
        (504, 1, lambda url, path: Client(KEY, APIConfig(host=url)).predict(path)),
    ],
)
def test_calls_that_may_have_had_an_effect_are_not_repeated(
    status: int,
    tries: int,
    call: Callable[[str, str], object],
    edge: Edge,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    edge.faults.extend([Response(status_code=status)] * 9)
    path = tmp_path / "kim.wav"
    path.write_bytes(wav(tone(1.0)))
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    with pytest.raises(CochlSenseException):
        call(edge.url, str(path))
    assert len(edge.requests) == tries


def test_speakers_are_managed_by_name(url: str, tmp_path: Path) -> None:
    path = tmp_path / "kim.wav"
    path.write_bytes(wav(tone(1.0)))
    api = SpeakerProfileApi(ORG_KEY, host=f"{url}/api/v2")
    assert api.add_new_voice("Kim", str(path))["speaker"] == "Kim"
    assert [speaker["speaker"] for speaker in api.list_all_speakers()] == ["Kim"]
    assert api.recognize(str(path))["transcription"]
    api.remove("Kim")
    with pytest.raises(CochlSenseException, match="speaker not found"):
        api.remove("Kim")


def test_unreachable_service_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    with pytest.raises(CochlSenseException, match="refused"):
        SpeakerProfileApi(ORG_KEY, host="http://127.0.0.1:9").list_all_speakers()
    with pytest.raises(CochlSenseException, match="refused"):
        IntegratedApi(KEY, host="http://127.0.0.1:9").get_completed_result("job")


@pytest.mark.parametrize("key", ["", "a\nb", "열쇠"])
def test_invalid_keys_are_rejected(key: str) -> None:
    for make in (IntegratedApi, SpeakerProfileApi, Client, compat.CustomSoundApi):
        with pytest.raises(ValueError, match="key"):
            make(key)
