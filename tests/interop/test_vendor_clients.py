"""The vendor's public clients work against this service by their host option alone."""

import subprocess
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import soundfile

from infra.examples import RECORDING
from tests.conftest import ROOT
from tests.contract.api import Service, tone, wav
from tests.documentation.pages import read
from tests.interop.environments import RUN_SECONDS
from tests.interop.vendor import VendorClient, python
from tests.recordings import SIREN

pytestmark = pytest.mark.slow

ALIAS = "/sense/api/v1"
BAD_REQUEST = "BadRequestException 400"

PREDICT = [VendorClient("cochl", version, "predict.py") for version in ("2.0.1", "1.0.13")]
GENERATED = VendorClient("cochl-sense-api", "1.7.11", "operations.py")


@pytest.fixture
def recording(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The siren, in the test's format."""
    if request.param == "ogg":
        return SIREN
    samples, rate = soundfile.read(SIREN, dtype="int16")
    path = tmp_path / f"siren.{request.param}"
    soundfile.write(path, samples, rate)
    return path


def tags(window: dict[str, Any], field: str) -> set[str]:
    return {tag["name"] for tag in window[field]}


@pytest.mark.parametrize("recording", ["wav", "ogg", "flac"], indirect=True)
@pytest.mark.parametrize("client", PREDICT, ids=lambda client: client.version)
def test_predict_names_the_sound(client: VendorClient, recording: Path, service: Service) -> None:
    said = client.call(service.url + ALIAS, service.key, str(recording))
    assert said.raised is None, said.message
    value: dict[str, Any] = said.value
    windows = value["windows"]
    # The alias serves the later interface: windows of 2 s every second.
    assert [(window["start_time"], window["end_time"]) for window in windows] == [(n, n + 2) for n in range(4)]
    assert all("Siren" in tags(window, "sound_tags") for window in windows)
    assert "At 0-5s, [Siren] was detected" in value["summary"]
    assert "Siren" in value["tags"]


@pytest.mark.both_logs
@pytest.mark.parametrize("client", PREDICT, ids=lambda client: client.version)
def test_file_over_one_mebibyte_needs_raised_kafka_limit(
    client: VendorClient, request: pytest.FixtureRequest, service: Service, tmp_path: Path
) -> None:
    """These clients do not split it. Kafka topics default to smaller records unless a setting raises the limit."""
    path = tmp_path / "long.wav"
    path.write_bytes(wav(tone(40.0)))
    said = client.call(service.url + ALIAS, service.key, str(path))
    if request.node.callspec.params["service"] == "embedded":
        assert said.raised is None, said.message
    else:
        assert said.raised is not None


@pytest.mark.parametrize("client", PREDICT, ids=lambda client: client.version)
def test_documentation_example_prints_events(client: VendorClient, service: Service, tmp_path: Path) -> None:
    ((example, printed),) = [
        (block.text, after.text)
        for block, after in pairwise(read(ROOT / "docs" / "sessions.md").blocks())
        if "cochl.sense" in block.text
    ]
    for place, ours in ("http://127.0.0.1:8000", service.url), ("esp_...", service.key):
        example = example.replace(place, ours)
    soundfile.write(tmp_path / "recording.wav", *soundfile.read(RECORDING, dtype="int16"))
    command: list[str | Path] = [python(client.package, client.version), "-W", "ignore", "-c", example]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=RUN_SECONDS)
    assert sorted(done.stdout.splitlines()) == sorted(printed.splitlines()), done.stderr


@pytest.mark.both_logs
@pytest.mark.parametrize("recording", ["ogg"], indirect=True)
@pytest.mark.parametrize(("prefix", "window", "hop"), [("", 1, 0.5), (ALIAS, 2, 1)], ids=["root", "alias"])
def test_generated_client_supports_every_operation(
    prefix: str, window: float, hop: float, recording: Path, service: Service
) -> None:
    value: dict[str, Any] = GENERATED.call(service.url + prefix, service.key, str(recording), "audio/ogg").value
    file = value["file"]
    count = int((5 - window) / hop) + 1
    assert (file["created"]["window_size"], file["created"]["window_hop"]) == (window, hop)
    assert [event["start_time"] for event in file["windows"]] == [n * hop for n in range(count)]
    assert [event["end_time"] for event in file["windows"]] == [n * hop + window for n in range(count)]
    assert all("Siren" in tags(event, "tags") for event in file["windows"])
    assert file["pending"] == "pending"
    assert file["states"] == ["readonly"] * len(file["pages"])
    assert sum(page["count"] for page in file["pages"]) == count
    assert all(page["count"] for page in file["pages"]), "an empty last page breaks older samples"
    assert file["some"] == {"state": "done", "more": True, "data": file["windows"][1:3]}
    refusals = [file[name] for name in ("skipped", "closed", "deleted", "forged")]
    assert refusals == ["ConflictException 409", "ForbiddenException 403", "NotFoundException 404", BAD_REQUEST]
    assert value["wrong_key"] == "UnauthorizedException 401"
    assert value["bad_type"] == BAD_REQUEST
    silence = [{"name": "Others", "probability": 0.0}]
    assert [event["tags"] for event in value["predict"]["data"]] == [silence, silence]
    assert (value["predict"]["next"], value["predict"]["again"]) == (2, "ConflictException 409")
