"""The interface's statements about the vendor's client hold for `earshot_client.compat`, and differences are listed.

The same trials run with each client, against this service and against a server that answers every status.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
import soundfile

from tests.contract.api import Service, tone, wav
from tests.contract.speech import spoken
from tests.interop.environments import RUN_SECONDS
from tests.interop.vendor import DRIVERS, python
from tests.ports import serving
from tests.process import ORG_KEY
from tests.recordings import SIREN
from tests.stub_engines import StubEngines

pytestmark = pytest.mark.slow

Said = dict[str, dict[str, Any]]

STATUSES = (400, 401, 402, 403, 404, 409, 413, 422, 429, 500, 502, 503, 504)
#: The parts that a client has any trial of.
PARTS = {"2.0.1": {"analysis", "speaker", "sounds", "result"}, "1.0.13": {"sounds"}}

#: Differences between the vendor's clients and the interface's statements about them.
DIFFERENCES: dict[str, dict[str, str]] = {
    "2.0.1": {"flac": "sends what its decoder library can read"},
    "1.0.13": {
        "flac": "sends what its decoder library can read",
        "prediction that takes too long": "the method has no timeout: TypeError",
        **{f"prediction {n}": "an exception of its generated client, an Exception" for n in STATUSES},
        "prediction, wrong key": "an exception of its generated client, an Exception",
    },
}

#: A result of which one service failed.
PARTLY = {
    "caption": {"status": "success"},
    "speech_analysis": {"status": "error", "error": "ASR Engine API error: 500"},
}


class Fake(BaseHTTPRequestHandler):
    """Answers as the first part of the path says."""

    protocol_version = "HTTP/1.1"
    requests: ClassVar[list[str]] = []

    def answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.requests.append(f"{self.command} {self.path}")
        _, kind, *rest = self.path.split("/")
        if kind == "status":
            self.send(int(rest[0]), {"error": "words of the server", "status_code": int(rest[0])})
        elif kind == "rule":
            self.send(200, {"data": None, "error": "words of the server", "debug": ""})
        elif self.path.endswith("/stream"):
            self.stream(kind)
        elif self.command == "GET" and "/results" in self.path:
            error = {"error": "not a WAV file"} if kind == "broken" else {}
            state = "error" if kind == "broken" else "pending"
            self.send(200, {"state": state, "data": [], "has_more": False, **error})
        elif self.command == "GET":
            self.send(404, {"error": "Not Found", "status_code": 404})
        else:
            self.send(200, {"session_id": "s", "chunk_sequence": 1, "window_size": 2, "window_hop": 1})

    def stream(self, kind: str) -> None:
        event = {
            "completed": 'event: completed\ndata: {"metadata": {}}\n\n',
            "partly": f"event: completed\ndata: {json.dumps(PARTLY)}\n\n",
            "failed": 'event: error\ndata: {"error": "the analysis failed"}\n\n',
            "ends": 'id: 1\nevent: progress\ndata: {"progress": 0.5}\n\n',
        }[kind].encode()
        if "Last-Event-ID" in self.headers:
            event = b": nothing more\n\n"
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Content-Length", str(len(event)))
        self.end_headers()
        self.wfile.write(event)

    def send(self, status: int, body: object) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = answer

    def log_message(self, format: str, *arguments: object) -> None: ...


@pytest.fixture(scope="module")
def fake() -> Iterator[str]:
    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Fake)) as server:
        yield f"http://127.0.0.1:{server.server_port}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recordings")
    (folder / "a.wav").write_bytes(wav(tone(2.5)))
    (folder / "a.txt").write_text("no audio at all")
    (folder / "talk.wav").write_bytes(spoken())
    (folder / "large.wav").write_bytes(wav(tone(1.0)) + bytes(10 * 1024 * 1024))
    samples, rate = soundfile.read(SIREN, dtype="int16")
    soundfile.write(folder / "a.flac", samples, rate)
    return folder


@pytest.fixture(scope="module", params=["compat", "2.0.1", "1.0.13"])
def client(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def said(client: str, fake: str, folder: Path, service: Service, engines: StubEngines) -> Said:
    """Return a client's results in all trials, run in one process."""
    engines.heal()
    ours = client == "compat"
    interpreter = sys.executable if ours else python("cochl", client)
    given = {"fake": fake, "service": service.url, "key": service.key, "org_key": ORG_KEY, "folder": str(folder)}
    Fake.requests.clear()
    command = [interpreter, "-W", "ignore", DRIVERS / "described.py"]
    module = "earshot_client.compat" if ours else "cochl.sense"
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [*command, module, json.dumps(given)],
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS,
        cwd=root,
        env={"PYTHONPATH": str(root)} if ours else {},
    )
    assert done.returncode == 0, done.stderr
    result: Said = json.loads(done.stdout.splitlines()[-1])
    return result


def checked(client: str, said: Said, expected: Said, part: str) -> None:
    """Compare trials; listed differences must occur, and parts that a client lacks raise AttributeError."""
    if client != "compat" and part not in PARTS[client]:
        assert {said[name].get("raised") for name in expected} <= {"AttributeError"}
        return
    listed = DIFFERENCES.get(client, {})
    for name, outcome in expected.items():
        same = outcome.items() <= said[name].items()
        assert same is (name not in listed), f"{name}: {said[name]}, not {outcome}; {listed.get(name)}"


def refusal(message: str) -> dict[str, Any]:
    return {"raised": "CochlSenseException", "exception": False, "message": message}


def phrases(what: str) -> Said:
    return {f"{what} {status}": refusal(HTTPStatus(status).phrase) for status in STATUSES}


def test_1_exceptions_derive_from_base_exception(client: str, said: Said) -> None:
    checked(client, said, {"base": {"value": False}, "timeout base": {"value": False}}, "sounds")


def test_2_rejected_analysis_raises_reason_phrase_and_support_hint(client: str, said: Said) -> None:
    expected = {
        **phrases("analysis"),
        "analysis, wrong key": refusal("Unauthorized"),
        "analysis, bad options": refusal("Bad Request"),
        "analysis, no audio": refusal("Internal Server Error"),
    }
    checked(client, said, expected, "analysis")
    for name in expected:
        if said[name].get("raised") == "CochlSenseException":
            phrase, sentence = said[name]["text"].split("\n")
            assert phrase == said[name]["message"]
            assert "contact" in sentence


def test_3_speaker_errors_are_passed_through(client: str, said: Said) -> None:
    expected = {
        **phrases("speaker"),
        "speaker, a rule": refusal("words of the server"),
        "speaker, wrong key": refusal("Unauthorized"),
        "speaker, bad name": refusal("speaker is invalid. only alphabet, number and underscore are allowed"),
    }
    checked(client, said, expected, "speaker")


def test_4_empty_key_raises_value_error(client: str, said: Said) -> None:
    error = {"raised": "ValueError"}
    checked(client, said, {"empty key of jobs": error}, "analysis")
    checked(client, said, {"empty key of speakers": error}, "speaker")
    checked(client, said, {"empty key of sounds": error}, "sounds")


def test_5_failed_analysis_has_no_result(client: str, said: Said) -> None:
    expected: Said = {
        "result": {"value": {"metadata": {}}},
        "result of failed entries": {"value": PARTLY},
        "result of a failure": {"value": None},
        "result of a stream that ends": {"value": None},
        "result of an unknown job": {"raised": "HTTPError", "exception": True},
    }
    checked(client, said, expected, "result")


def test_all_services_in_one_call(client: str, said: Said) -> None:
    if client == "1.0.13":
        assert said["all services"]["raised"] == "AttributeError"
        return
    value = said["all services"]["value"]
    assert value["accepted"]["status"] == "accepted"
    result = value["result"]
    entries = ("sound_event_detection", "speech_analysis", "audio_insights", "caption")
    assert [result[name]["status"] for name in entries] == ["success"] * 4
    # The engine's text contains `data: `, at which the client splits lines.
    assert "data: " in " ".join(segment["transcript"] for segment in result["speech_analysis"]["results"])
    assert result["metadata"]["audio"]["input"]["filename"] == "talk.wav"


def test_6_voice_file_over_10_mb_is_rejected_unsent(client: str, said: Said) -> None:
    refused = {"raised": "CochlSenseException", "exception": False}
    checked(client, said, {"large voice": refused, "large recognition": refused}, "speaker")


def test_7_sound_event_client_errors(client: str, said: Said) -> None:
    expected = {
        "missing file": {"raised": "FileNotFoundError"},
        "text": {"raised": "ValueError"},
        "flac": {"raised": "ValueError"},
        **phrases("prediction"),
        "prediction, wrong key": refusal("Unauthorized"),
        "prediction that fails": refusal("not a WAV file"),
        "prediction that takes too long": {"raised": "TimeoutException", "exception": False},
        "prediction": {"value": 2},
    }
    checked(client, said, expected, "sounds")


def test_custom_sounds_are_rejected_with_alternative(client: str, said: Said) -> None:
    """The interface lacks them; the two later clients show the service's message."""
    told = said["custom sound"]
    assert "value" not in told
    if client != "1.0.13":
        assert told["raised"] == "CochlSenseException"
        assert "earshot models train-tag" in told["message"]


def test_client_side_errors_send_nothing(client: str, said: Said) -> None:
    """Empty keys, large files, missing files, wrong formats; 1.0.13 requests versions of itself."""
    assert said
    assert [line for line in Fake.requests if "/unsent/" in line and "client-libraries" not in line] == []
