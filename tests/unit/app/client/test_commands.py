"""`earshot listen` and `earshot detect` as a user types them, against the service's edge."""

import io
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile
from structlog.testing import capture_logs

from earshot_client import _calls, _event_stream, _socket_state
from earshot_client._http import READ_LIMIT
from earshot_client._service_values import KINDS
from infra.cli import pcm
from tests.audio import encoded
from tests.cutter import Cutter
from tests.unit.app.client.conftest import Command
from tests.unit.app.client.edge import Edge, Fault
from tests.unit.app.conftest import KEY, House
from tests.unit.app.double import Session
from tests.waiting import wait_for
from topics.errors import AudioError, BadRequest
from topics.sessions.rules import SessionState

pytestmark = pytest.mark.slow

RATE = 8000
WINDOWS = [
    "At 0.5-1.5s, Siren (0.98), Speech (0.63)",
    "At 1-2s, Speech (0.98), Baby_cry (0.63)",
    "At 1.5-2.5s, Dog_bark (0.98), Siren (0.63)",
]
LINES = [
    "At 0.5-1.5s, Siren (0.98)",
    "At 0.5-2s, Speech (0.98)",
    "At 1-2s, Baby_cry (0.63)",
    "At 1.5-2.5s, Dog_bark (0.98)",
    "At 1.5-2.5s, Siren (0.63)",
]
FIRST_HEARD = {
    "start_time": 0.5,
    "end_time": 1.5,
    "tags": [{"name": "Siren", "probability": 0.9753}, {"name": "Speech", "probability": 0.6283}],
}
Listen = Callable[..., tuple[int, list[str], str]]


@pytest.fixture
def ramp(tmp_path: Path) -> Path:
    """A second of silence, and 1.25 s of a ramp, in two channels."""
    path = tmp_path / "ramp.wav"
    rise = np.maximum(np.arange(int(RATE * 2.25), dtype=np.int16) - RATE, 0)
    soundfile.write(path, np.stack([rise, -rise], axis=1), RATE)
    return path


@pytest.fixture
def listen(cutter: Cutter, earshot: Command) -> Listen:
    return lambda *arguments: earshot("listen", *arguments, "--url", cutter.url, project_key=KEY)


def only(house: House) -> Session:
    """Return the only session, which is read-only."""
    (session,) = house.sessions.sessions.values()
    assert session.head.state is SessionState.READONLY
    return session


def pipe(monkeypatch: pytest.MonkeyPatch, audio: io.RawIOBase | io.BytesIO) -> None:
    monkeypatch.setattr(sys, "stdin", type("Stdin", (), {"buffer": audio}))


def test_listen_prints_runs_and_sends_every_sample(house: House, ramp: Path, listen: Listen) -> None:
    code, out, err = listen(ramp, "--speed", "max", "--whole")
    assert (code, sorted(out), err) == (0, LINES, "")
    session = only(house)
    assert session.opened.file_name == "ramp.wav", "lists show it"
    assert session.opened.content_type == "audio/x-raw; rate=8000; format=s16le"
    assert [len(chunk) for chunk in session.chunks] == [RATE] * 4 + [RATE // 2]
    # The channels cancel each other, so the first one stands for both.
    sent = np.frombuffer(b"".join(session.chunks), "<i2")
    assert np.array_equal(sent, soundfile.read(ramp, dtype="int16")[0][:, 0])


def test_listen_prints_windows(ramp: Path, listen: Listen) -> None:
    assert listen(ramp, "--speed", "max") == (0, WINDOWS, ""), "nothing is heard in the first one"
    _, out, _ = listen(ramp, "--speed", "max", "--json")
    assert json.loads(out[1]) == FIRST_HEARD
    assert len(out) == 4
    _, out, _ = listen(ramp, "--speed", "max", "--json", "--whole")
    assert {"start", "end", "name", "probability"} == set(json.loads(out[0]))


def test_listen_resumes_after_disconnect(
    house: House, cutter: Cutter, listen: Listen, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Microphone(io.RawIOBase):
        """Yields ten half seconds, with a cut before each."""

        def read(self, size: int = -1) -> bytes:
            cutter.cut()
            return next(blocks, b"")

    sent = [bytes([number + 1]) * 16000 for number in range(10)]
    blocks = iter(sent)
    pipe(monkeypatch, Microphone())
    code, out, _ = listen("-")
    assert (code, [line.split(",")[0] for line in out]) == (0, [f"At {n / 2:g}-{n / 2 + 1:g}s" for n in range(9)])
    assert only(house).chunks == sent


def test_listen_reads_pipe(house: House, listen: Listen, monkeypatch: pytest.MonkeyPatch) -> None:
    # 1.25 s of 24-bit audio and half a frame.
    pipe(monkeypatch, io.BytesIO(bytes(10000 * 3 + 2)))
    options = "--rate 8000 --format s24le --sensitivity -1 --tag-sensitivity Dog_bark=2"
    code, _, err = listen("-", "--name", "Front door", *options.split())
    assert (code, err) == (0, "")
    session = only(house)
    assert [len(chunk) for chunk in session.chunks] == [12000, 12000, 6000]
    assert session.opened.content_type == "audio/x-raw; rate=8000; format=s24le"
    assert session.opened.file_name == "Front door"
    assert (session.opened.default_sensitivity, session.opened.tags_sensitivity) == (-1, {"Dog_bark": 2})


@pytest.mark.parametrize(
    ("subtype", "kind", "content_type"),
    [
        ("PCM_16", "WAV", "s16le"),
        ("PCM_24", "WAVEX", "s24le"),
        ("PCM_U8", "WAV", "u8"),
        ("FLOAT", "WAV", "f32le"),
        ("PCM_16", "RF64", "s16le"),
    ],
)
@pytest.mark.parametrize("size", [None, 0, 0xFFFFFFFF])
def test_listen_reads_header_of_wav_pipe(subtype: str, kind: str, content_type: str, size: int | None) -> None:
    """`arecord` and FFmpeg write a WAV file into a pipe, of which they do not know the length."""
    data = bytearray(encoded(np.zeros((RATE * 2, 2), np.float32), RATE, kind, subtype))
    at = data.rindex(b"data") + 8
    if size is not None:
        data[at - 4 : at] = size.to_bytes(4, "little")
    source = pcm.from_pipe(io.BytesIO(data), 16000, "s16le", 1)
    assert source.content_type == f"audio/x-raw; rate={RATE}; format={content_type}; channels=2"
    assert b"".join(source.blocks) == data[at:]


def test_samples_of_wav_pipe_end_where_its_header_says() -> None:
    data = encoded(np.zeros(RATE), RATE)
    source = pcm.from_pipe(io.BytesIO(data + b"LIST\4\0\0\0abcd"), 16000, "s16le", 1)
    assert b"".join(source.blocks) == data[-2 * RATE :]


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (encoded(np.zeros(RATE), RATE, "OGG"), "an Ogg file"),
        (encoded(np.zeros(RATE), RATE, "FLAC"), "a FLAC file"),
        (encoded(np.zeros(RATE), RATE, "MP3"), "MP3 audio"),
        (encoded(np.zeros(RATE), RATE, "WAV", "ULAW"), "a WAV file without plain samples"),
        (encoded(np.zeros(RATE), RATE)[:40], "a WAV file without plain samples"),
    ],
)
def test_listen_names_container_of_pipe(
    listen: Listen, monkeypatch: pytest.MonkeyPatch, data: bytes, name: str
) -> None:
    pipe(monkeypatch, io.BytesIO(data))
    wanted = f"earshot: the standard input is {name}: save it to a file, and run earshot listen with its path\n"
    assert listen("-") == (1, [], wanted)


def test_ctrl_c_seals_session_and_prints_remaining_events(
    house: House, listen: Listen, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Microphone(io.RawIOBase):
        """Yields two half seconds, then raises Ctrl-C."""

        blocks = [b"\x01" * 16000] * 2

        def read(self, size: int = -1) -> bytes:
            if not self.blocks:
                signal.raise_signal(signal.SIGINT)
            return self.blocks.pop()

    pipe(monkeypatch, Microphone())
    # Shells ignore the signal in background processes.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        code, out, _ = listen("-")
    finally:
        signal.signal(signal.SIGINT, before)
    assert (code, out) == (0, ["At 0-1s, Dog_bark (0.98), Siren (0.63)"])
    assert len(only(house).chunks) == 2


def test_listen_reports_why_session_failed(listen: Listen, monkeypatch: pytest.MonkeyPatch) -> None:
    pipe(monkeypatch, io.BytesIO(bytes(1 << 20)))
    code, _, err = listen("-", "--format", "u16")
    assert code == 1
    assert err == "earshot: declared audio/x-raw; rate=16000; format=u16le, but the data is something else\n"


def test_detect_prints_table_per_file(url: str, house: House, ramp: Path, earshot: Command) -> None:
    path = ramp.rename(ramp.with_name("a recording of the door with a long name, which no table is as wide as.wav"))
    code, out, err = earshot("detect", path, path, "--url", url, project_key=KEY)
    assert (code, err) == (0, "")
    assert (out[0], out.count(str(path))) == (str(path), 2)
    assert sum("Dog_bark" in line for line in out) == 2 * 2, "two runs in each"
    assert len(house.sessions.sessions) == 2


def test_detect_continues_after_failed_file(url: str, ramp: Path, tmp_path: Path, earshot: Command) -> None:
    notes = tmp_path / "notes.txt"
    notes.write_text("not audio at all")
    missing = tmp_path / "missing.wav"
    files = [str(notes), str(missing), ramp]
    code, out, err = earshot("detect", *files, "--json", "--url", url, project_key=KEY)
    assert code == 1
    assert [line.split(": ", 2)[1] for line in err.splitlines()] == files[:2]
    first, second, third = map(json.loads, out)
    assert first == {"file": str(notes), "error": f"not a {KINDS} file"}
    assert second == {"file": str(missing), "error": "No such file or directory"}
    assert third["events"][4] == {**FIRST_HEARD, "start_time": 2.0, "end_time": 3.0}


@pytest.mark.parametrize(
    ("command", "key", "known"),
    [
        ("listen {ramp}", "project_key", "project key (Invalid API key)"),
        ("detect {ramp}", "project_key", "project key (Invalid API key)"),
        ("speakers list", "org_key", "organization key (organization not found)"),
        ("speakers add Kim {ramp} {ramp}", "org_key", "organization key (organization not found)"),
        ("analyze {ramp} {ramp}", "project_key", "project key (Invalid API key)"),
        ("jobs list", "project_key", "project key (Invalid API key)"),
        ("jobs delete j1 --yes", "project_key", "project key (Invalid API key)"),
        ("jobs show j1", "project_key", ""),  # Whoever knows the id may read.
    ],
)
def test_key_and_connection_errors_are_reported_once(
    command: str, key: str, known: str, cutter: Cutter, ramp: Path, earshot: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in _calls, _event_stream, _socket_state:
        monkeypatch.setattr(module, "RETRIES", (0.01,))
    words = command.format(ramp=ramp).split()
    with capture_logs():  # of the edge, which runs in this process
        code, out, err = earshot(*words, "--url", cutter.url, **{key: "wrong"})
    assert (code, out) == (1, [])
    assert err == f"earshot: the service at {cutter.url} does not know this {known}\n" or not known
    code, out, err = earshot(*words, "--url", "http://127.0.0.1:9", **{key: KEY})
    assert (code, out) == (1, [])
    assert err.startswith("earshot: no answer from http://127.0.0.1:9: ")
    assert "--url or EARSHOT_URL" in err
    assert len(err.splitlines()) == 1
    code, _, err = earshot(*words, "--url", cutter.url)
    kind, option, variable = {
        "project_key": ("project", "--key-file", "EARSHOT_PROJECT_KEY"),
        "org_key": ("organization", "--org-key-file", "EARSHOT_ORG_KEY"),
    }[key]
    assert (code, err) == (1, f"earshot: no {kind} key: set {variable}, or give {option} or {variable}_FILE\n")


@pytest.mark.parametrize(
    "url", ["localhost:8000", "ftp://localhost", "http://", "http://127.0.0.1:99999", "http://[::1", "http://a b"]
)
@pytest.mark.parametrize("command", ["listen {ramp}", "detect {ramp}", "jobs list", "speakers list", "link"])
def test_invalid_url_is_reported(command: str, url: str, ramp: Path, earshot: Command) -> None:
    words = command.format(ramp=ramp).split()
    code, out, err = earshot(*words, "--url", url, project_key=KEY, org_key=KEY)
    assert (code, out) == (1, [])
    assert err == (
        f"earshot: {url!r} is not the URL of a service: set --url or EARSHOT_URL to one such as http://127.0.0.1:8000\n"
    )


def test_password_in_url_is_not_printed(ramp: Path, earshot: Command) -> None:
    for url in ("http://u:secret@127.0.0.1:9", "ftp://u:secret@127.0.0.1"):
        code, _, err = earshot("detect", ramp, "--url", url, project_key=KEY)
        assert (code, len(err.splitlines())) == (1, 1)
        assert "u:***@127.0.0.1" in err


def test_closed_or_empty_standard_input_is_reported(
    listen: Listen, earshot: Command, ramp: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe(monkeypatch, io.BytesIO())
    assert listen("-") == (1, [], "earshot: the standard input: there is no audio\n")
    monkeypatch.setattr(sys, "stdin", None)
    assert listen("-") == (1, [], "earshot: the standard input: there is no audio\n")
    code, out, err = earshot("detect", ramp, "--key-file", "-")
    assert (code, out, len(err.splitlines())) == (2, [], 1)
    assert "standard input" in err


@pytest.mark.parametrize(
    ("faults", "asked", "left"),
    [
        ([b"", b""], ["POST"] * 2, 0),  # Two files.
        # The session opens, and its chunk gets no answer.
        ([None, b""], ["POST", "PUT", "DELETE"], 0),
        ([None, b"", BadRequest("not now")], ["POST", "PUT", "DELETE"], 1),
    ],
    ids=["nothing", "session", "session that stays"],
)
def test_ctrl_c_deletes_unfinished_sessions_and_waits_for_no_answer(
    edge: Edge, house: House, ramp: Path, faults: list[Fault], asked: list[str], left: int
) -> None:
    edge.faults.extend(faults)
    environment = {"EARSHOT_URL": edge.url, "EARSHOT_PROJECT_KEY": KEY}
    command = [sys.executable, "-m", "infra.cli", "detect", *[str(ramp)] * asked.count("POST")]
    # A process that a shell started in the background, and its children, ignore the signal.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        signal.signal(signal.SIGINT, before)
        wait_for(lambda: len(edge.requests) == 2)
        process.send_signal(signal.SIGINT)
        start = time.monotonic()
        said = process.communicate(timeout=60)[0].decode()
    assert time.monotonic() - start < 0.8 * READ_LIMIT
    stays = f"earshot: {ramp}: its session is not deleted, and may still be analysed: not now\n"
    assert (process.returncode, said) == (128 + signal.SIGINT, stays * left)
    assert [request.method for request in edge.requests] == asked
    assert len(house.sessions.sessions) == left


def test_listen_prints_no_messages_of_the_decoder(cutter: Cutter, tmp_path: Path) -> None:
    path = tmp_path / "noise.mp3"
    soundfile.write(path, np.random.default_rng(1).uniform(-0.5, 0.5, RATE * 8), RATE, format="MP3")
    command = [sys.executable, "-m", "infra.cli", "listen", "--speed", "max", str(path)]
    environment = {"EARSHOT_URL": cutter.url, "EARSHOT_PROJECT_KEY": KEY}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_key_is_read_from_file(
    url: str, ramp: Path, tmp_path: Path, earshot: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "key"
    file.write_text(f"{KEY}\n")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(KEY.encode())))
    command = ["detect", ramp, "--url", url]
    assert earshot(*command, project_key_file=str(file))[0] == 0
    # An option takes precedence over the environment.
    assert earshot(*command, "--key-file", str(file), project_key="another")[0] == 0
    assert earshot(*command, "--key-file", "-")[0] == 0
    code, _, err = earshot(*command, project_key="another", project_key_file=str(file))
    assert (code, err.splitlines()) == (
        2, ["earshot: EARSHOT_PROJECT_KEY: is set, and so is EARSHOT_PROJECT_KEY_FILE; set one of them"],
    )  # fmt: skip
    code, _, err = earshot(*command, "--key", KEY)
    assert code == 2, "a key is no argument: everybody who lists processes would see it"
    assert KEY not in err


@pytest.mark.parametrize(
    "wrong", [["--speed", "0"], ["--speed", "fast"], ["--tag-sensitivity", "Speech=3"], ["--format", "mp3", "-"]]
)
def test_invalid_options_are_rejected(wrong: list[str], ramp: Path, earshot: Command) -> None:
    file = [] if "-" in wrong else [ramp]
    code, _, err = earshot("listen", *file, *wrong, project_key=KEY)
    assert code == 2
    assert wrong[0] in err


def test_unreadable_audio_is_reported(tmp_path: Path, earshot: Command) -> None:
    (tmp_path / "notes.txt").write_text("not audio at all")
    code, _, err = earshot("listen", str(tmp_path / "notes.txt"), project_key=KEY)
    assert code == 1
    assert err == f"earshot: {tmp_path}/notes.txt: the data is not a supported audio file\n"
    code, _, err = earshot("listen", str(tmp_path / "missing.wav"), project_key=KEY)
    assert (code, err) == (1, f"earshot: {tmp_path}/missing.wav: No such file or directory\n")
    with pytest.raises(AudioError, match="not a sample format"):
        pcm.from_pipe(io.BytesIO(), 16000, "s17le", 1)


def test_float_files_are_scaled(tmp_path: Path) -> None:
    path = tmp_path / "float.wav"
    soundfile.write(path, np.array([0.5, -1.0, 1.5, 0.0], np.float32), RATE, subtype="FLOAT")
    assert np.frombuffer(b"".join(pcm.from_file(path).blocks), "<i2").tolist() == [16384, -32768, 32767, 0]


def test_pacing_follows_clock_and_catches_up() -> None:
    now = [10.0]
    slept = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    for number, _ in enumerate(pcm.paced(iter([b""] * 5), 2.0, lambda: now[0], sleep)):
        # The second block takes so long that the third is late; the fourth is on time again.
        now[0] += 0.35 if number == 1 else 0.0
    assert slept == pytest.approx([0.25, 0.15, 0.25])
