"""OpenAI's own clients, unmodified, against `/v1/audio`, by their base URL alone."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.contract.api import Service
from tests.contract.speech import spoken
from tests.interop.environments import kept, program, run
from tests.interop.vendor import DRIVERS, VendorClient
from tests.stub_engines import WORDS, StubEngines

pytestmark = pytest.mark.slow

PYTHON = VendorClient("openai", "3.54.0", "openai_calls.py")
JAVASCRIPT = "openai", "7.57.0"
#: The engine's transcript for each piece of speech; this recording is one piece.
TEXT = " ".join(WORDS)
USAGE = {"type": "duration", "seconds": 8.0}


@pytest.fixture
def talk(tmp_path: Path, engines: StubEngines) -> str:
    """A recording with speech, and healthy engines."""
    engines.heal()
    file = tmp_path / "talk.wav"
    file.write_bytes(spoken())
    return str(file)


def check_answers(value: dict[str, Any]) -> None:
    """Check the answers that both clients get."""
    assert value["json"] == {"text": TEXT, "usage": USAGE}
    assert value["text"] == f"{TEXT}\n"
    assert value["srt"].startswith("1\n00:00:0")
    verbose = value["verbose_json"]
    assert (verbose["text"], verbose["language"], verbose["duration"]) == (TEXT, "english", 8.0)
    assert [word["word"] for word in verbose["words"]] == list(WORDS)
    assert [segment["text"] for segment in verbose["segments"]] == [TEXT]
    assert verbose["segments"][0]["start"] <= verbose["words"][0]["start"] < verbose["words"][1]["start"]
    diarized = value["diarized_json"]
    assert {segment["speaker"] for segment in diarized["segments"]} <= {"A", "B"}
    assert " ".join(segment["text"] for segment in diarized["segments"]) == TEXT
    *deltas, done = value["events"]
    assert {event["type"] for event in deltas} == {"transcript.text.delta"}
    assert "".join(event["delta"] for event in deltas) == TEXT
    assert (done["type"], done["text"]) == ("transcript.text.done", TEXT)
    assert value["translation"]["text"] == f"<{TEXT}>"
    assert value["wrong key"] == ["AuthenticationError", 401, "invalid_api_key", None]
    assert value["wrong model"] == ["NotFoundError", 404, "model_not_found", "model"]


def test_openai_python_client_works(service: Service, talk: str) -> None:
    value = PYTHON.call(service.url, service.key, talk)
    check_answers(value)
    assert value["types"] == ["TranscriptionVerbose", "TranscriptionWord", "TranscriptionSegment"]
    assert value["diarized type"] == "TranscriptionDiarized"
    assert value["vtt"].startswith("WEBVTT\n\n00:00:0")
    kinds = [event["type"].removeprefix("transcript.text.") for event in value["speakers as events"]]
    assert kinds == ["delta", "segment"] * (len(kinds) // 2) + ["done"]
    assert (value["verbose translation"]["task"], value["verbose translation"]["language"]) == ("translate", "english")
    assert "whisper-1" in value["models"]
    assert value["wrong format"] == ["BadRequestError", 400, None, "response_format"]
    assert value["unknown voice"] == ["BadRequestError", 400, None, "known_speaker_names"]
    assert value["no audio"] == ["BadRequestError", 400, None, "file"]


def test_openai_javascript_client_works(service: Service, talk: str) -> None:
    node = program("node")

    def install(folder: Path) -> None:
        folder.mkdir(parents=True)
        options = ["--ignore-scripts", "--no-audit", "--no-fund", "--no-package-lock"]
        run(program("npm"), "install", "--prefix", folder, *options, "@".join(JAVASCRIPT), skip=True)

    folder = kept("-".join(JAVASCRIPT), node, install)
    printed = run(node, DRIVERS / "openai_calls.mjs", folder, service.url, service.key, talk)
    check_answers(json.loads(printed.splitlines()[-1]))
