"""`earshot analyze` and `earshot jobs` as a user types them, at the service's edge."""

import json
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest

from tests.unit.app.client.conftest import Command
from tests.unit.app.client.edge import FAULTY, RESULTS, TURN, Edge
from tests.unit.app.conftest import KEY, House
from tests.unit.app.jobs.conftest import BOTH, sounds, transcript
from tests.unit.app.jobs.double import RECORDING
from topics.errors import Exhausted
from topics.jobs import payloads
from topics.jobs.options import DEFAULT_SPEECH_MODEL, Options, Service
from topics.jobs.payloads import Caption, Overlap
from topics.jobs.records import Accepted, Removed
from topics.times import iso_time


@pytest.fixture
def analyze(earshot: Command, edge: Edge) -> Command:
    edge.results = RESULTS
    return lambda *arguments: earshot("analyze", *arguments, "--url", edge.url, project_key=KEY)


def only(house: House) -> Accepted:
    """Return the request of the only job."""
    (job,) = house.jobs.jobs.values()
    assert job.accepted is not None
    return job.accepted


def get(url: str, path: str) -> httpx2.Response:
    return httpx2.get(f"{url}/api/v1/jobs/{path}", headers={"X-Api-Key": KEY}, timeout=60)


def test_analyze_prints_summary(house: House, wav: Path, analyze: Command) -> None:
    code, out, err = analyze(wav)
    assert (code, err) == (0, "")
    assert wav.name in "".join(out[:3])
    text = [" ".join(line.split()) for line in out]
    assert "0:00.5 1:01:01.2 Unknown 0 Sit! data: [good] dög" in text, "brackets are no markup"
    assert "0:00 0:03 0.98 Dog_bark" in text, "two windows are one stretch"
    assert "note: the engine has one language" in text
    assert only(house).options == BOTH


def test_overlapping_speakers_are_shown(edge: Edge, wav: Path, analyze: Command) -> None:
    others = Overlap(1000, 2000, 1, "Anna"), Overlap(1000, 2000, 2), Overlap(1000, 2000, 1, "Anna")
    turn = msgspec.structs.replace(TURN, overlap_ms=3000, overlaps=others)
    edge.results = {**RESULTS, Service.SPEECH: transcript(turn, msgspec.structs.replace(TURN, text="Stay!"))}
    text = [" ".join(line.split()) for line in analyze(wav)[1]]
    assert "from to speaker at once text" in text
    assert "0:00.5 1:01:01.2 Unknown 0 Anna, SPEAKER_02 Sit! data: [good] dög" in text
    assert "0:00.5 1:01:01.2 Unknown 0 Stay!" in text


def test_failed_service_is_reported_beside_other_results(edge: Edge, wav: Path, analyze: Command) -> None:
    edge.results = {**FAULTY, Service.CAPTION: payloads.encode(Caption("a\x1b[2J dog\x07"))}
    code, out, err = analyze(wav, "--insights")
    assert (code, err) == (1, f"earshot: {wav}: speech_analysis: ASR Engine API error: 500\n")
    text = [" ".join(line.split()) for line in out]
    assert "a[2J dog" in text, "without control characters"
    assert "environment a yard" in text
    assert not any("no words" in line for line in text)


def test_empty_results_are_reported(edge: Edge, wav: Path, analyze: Command) -> None:
    edge.results = {Service.SOUND: sounds(), Service.SPEECH: transcript()}
    _, out, _ = analyze(wav)
    # A long path is wrapped.
    rest = ["no words", "no sound recognised", "note: the engine has one language", ""]
    assert ("".join(out[:-4]), out[-4:]) == (str(wav), rest)


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        (["--no-speech"], {"sound_event_detection": True}),
        (["--no-sounds", "--speakers"], {"speech_analysis": True, "speaker_profile": True}),
        (
            ["--insights", "--prompt", "dogs"],
            dict.fromkeys(("sound_event_detection", "speech_analysis", "audio_insights", "caption"), True)
            | {"audio_insights_prompt": "dogs"},
        ),
        (
            ["--no-sounds", "--min-speakers", "2", "--max-speakers", "4"],
            {"speech_analysis": True, "min_speakers": 2, "max_speakers": 4},
        ),
        (
            ["--no-sounds", "--translate", "ko", "--lang", "en"],
            {"speech_analysis": True, "translation": True, "translation_target_lang": "ko", "speech_lang": "en"},
        ),
        (
            ["--no-sounds", "--no-diarization", "--word-times", "--speech-model", DEFAULT_SPEECH_MODEL],
            {"speech_analysis": True, "speaker_diarization": False, "word_times": True}
            | {"speech_model": DEFAULT_SPEECH_MODEL},
        ),
        (["--no-sounds", "--speech-lang", "German"], {"speech_analysis": True, "speech_lang": "German"}),
    ],
)
def test_flags_become_job_options(
    edge: Edge, house: House, wav: Path, analyze: Command, arguments: list[str], options: dict[str, Any]
) -> None:
    assert analyze(wav, *arguments, "--idempotency-key", "k")[0] == 0
    assert (only(house).options, edge.requests[0].headers["idempotency-key"]) == (Options(**options), "k")


def test_json_output(house: House, url: str, wav: Path, analyze: Command) -> None:
    code, out, err = analyze(wav, wav, "--json")
    assert (code, err) == (0, "")
    # Not `splitlines`, because the transcript contains another line separator.
    assert [json.loads(line) for line in "\n".join(out).replace("\n data:", "\u2028 data:").split("\n")] == [
        get(url, job).json()["result"] for job in house.jobs.jobs
    ]


def test_captions_are_written_to_files(house: House, url: str, wav: Path, analyze: Command, tmp_path: Path) -> None:
    srt, vtt = tmp_path / "yard.srt", tmp_path / "yard.vtt"
    assert analyze(wav, "--srt", srt, "--vtt", vtt)[0] == 0
    (job,) = house.jobs.jobs
    for path in srt, vtt:
        assert "[good] dög" in path.read_text(encoding="utf-8")
        assert path.read_bytes() == get(url, f"{job}/captions{path.suffix}").content
    code, out, err = analyze(wav, "--srt", "/dev/full")
    assert (code, err) == (1, f"earshot: {wav}: No space left on device\n")
    assert any("Dog_bark" in line for line in out), "the result was there"


def test_captions_are_refused_before_the_work(
    edge: Edge, known: list[str], wav: Path, analyze: Command, run: Command, tmp_path: Path
) -> None:
    edge.requests.clear()
    for place, fault in ((tmp_path / "none" / "a.srt", "No such file or directory"), (tmp_path, "Is a directory")):
        refused: tuple[int, list[str], str] = (1, [], f"earshot: {place}: {fault}\n")
        assert analyze(wav, "--srt", place) == analyze(wav, "--vtt", place) == refused
        assert run("show", known[0], "--srt", place) == refused
    assert edge.requests == []


def test_language_unknown_to_the_engine_is_suspected(edge: Edge, wav: Path, analyze: Command) -> None:
    edge.results = {**RESULTS, Service.SPEECH: "ASR Engine API error: 400"}
    code, _, err = analyze(wav, "--speech-lang", "xx")
    hint = "the engine may not know this language"
    assert (code, err) == (1, f"earshot: {wav}: speech_analysis: ASR Engine API error: 400; {hint}\n")


def test_language_that_is_none_is_refused_before_the_upload(edge: Edge, wav: Path, analyze: Command) -> None:
    meant = "; do you mean French?"
    for option, language, near in (("--speech-lang", "klingon", ""), ("--translate", "frensh", meant)):
        told = f"earshot: {option}: '{language}' is no language: give its code, as fr, or its English name{near}\n"
        assert analyze(wav, option, language) == (1, [], told)
    assert edge.requests == []


def test_failed_file_does_not_stop_others(edge: Edge, wav: Path, analyze: Command, tmp_path: Path) -> None:
    edge.faults.append(Exhausted())
    code, out, err = analyze(wav, tmp_path / "none.wav", wav)
    assert code == 1
    assert err.splitlines() == [
        f"earshot: {wav}: exceeded maximum usage limit",
        f"earshot: {tmp_path / 'none.wav'}: No such file or directory",
    ]
    assert sum("Dog_bark" in line for line in out) == 1


def test_deleted_job_is_reported(house: House, wav: Path, analyze: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    follow = house.jobs.follow
    monkeypatch.setattr(house.jobs, "follow", lambda job: house.jobs.command(job, Removed("it")) and follow(job))
    assert analyze(wav) == (1, [], f"earshot: {wav}: the job was removed\n")


def test_lost_connection_reports_job_id(
    edge: Edge, house: House, wav: Path, analyze: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("earshot_client._event_stream.RETRIES", ())
    monkeypatch.setattr("earshot_client._job_stream.JobStream.patience", 0)
    edge.faults.extend([None, 1])
    code, out, err = analyze(wav)
    (job,) = house.jobs.jobs
    assert (code, out) == (1, [])
    assert len(job) > 8, "an id opens what it names: only a terminal gets the whole"
    assert err.splitlines() == [
        f"earshot: the service continues job {job[:8]}; `earshot jobs list` shows its id",
        "earshot: the service does not answer any more: the stream ended",
    ]


def test_contradictory_options_are_rejected(edge: Edge, wav: Path, analyze: Command) -> None:
    one_file = "earshot: --srt, --vtt and --idempotency-key are for one file\n"
    assert analyze(wav, wav, "--srt", "a.srt") == (1, [], one_file)
    assert analyze(wav, "--prompt", "dogs") == (1, [], "earshot: --prompt needs --insights\n")
    assert edge.requests == []


@pytest.mark.parametrize(
    ("option", "fault"),
    [
        (("--idempotency-key", "kl\u00fc"), "--idempotency-key is sent in an HTTP header"),
        (("--idempotency-key", "a\nb"), "--idempotency-key is sent in an HTTP header"),
        (("--speech-prompt", "M\udcfcller"), "an argument is not UTF-8"),
    ],
)
def test_options_that_cannot_be_sent_are_rejected(
    edge: Edge, wav: Path, analyze: Command, option: tuple[str, str], fault: str
) -> None:
    code, out, err = analyze(wav, *option)
    assert (code, out, err.count("\n")) == (1, [], 1)
    assert err.startswith(f"earshot: {fault}")
    assert edge.asked == []


@pytest.fixture
def known(house: House) -> list[str]:
    """Two jobs, the newest first."""
    files = "j2.wav", "j1.wav"
    return [house.jobs.create(BOTH, msgspec.structs.replace(RECORDING, filename=name)) for name in files][::-1]


@pytest.fixture
def run(earshot: Command, edge: Edge) -> Command:
    edge.results = RESULTS
    return lambda *words: earshot("jobs", *words, "--url", edge.url, project_key=KEY)


def test_jobs_are_listed(edge: Edge, house: House, known: list[str], run: Command) -> None:
    edge.results = FAULTY
    code, out, err = run("list")
    assert (code, err) == (0, "")
    times = [iso_time(house.jobs.jobs[job].head.created) for job in known]
    assert [line.split() for line in out if line] == [
        ["job", "status", "created", "seconds", "failed", "file"],
        [known[0], "completed", times[0], "3661.25", "speech_analysis", "j1.wav"],
        [known[1], "completed", times[1], "3661.25", "speech_analysis", "j2.wav"],
    ]
    _, out, _ = run("list", "--json", "-n", 1, "--state", "completed")
    assert [one["job"] for one in json.loads("\n".join(out))] == known[:1]


def test_stored_result_is_shown(edge: Edge, house: House, known: list[str], run: Command, tmp_path: Path) -> None:
    code, out, err = run("show", known[1], "--srt", tmp_path / "j2.srt")
    assert (code, err) == (0, "")
    assert any("Dog_bark" in line for line in out)
    assert "[good] dög" in (tmp_path / "j2.srt").read_text(encoding="utf-8")
    edge.results = FAULTY
    faulty = house.jobs.create(BOTH)
    code, _, err = run("show", faulty, "--json")
    assert (code, err) == (1, f"earshot: {faulty}: speech_analysis: ASR Engine API error: 500\n")


def test_job_is_deleted(house: House, known: list[str], run: Command) -> None:
    assert run("delete", known[0], "--yes")[0] == 0
    assert [house.jobs.view(job) is None for job in known] == [True, False]
    assert run("show", known[0]) == (
        1, [], "earshot: there is no such job: it never existed, was deleted or has expired, or is another project's\n",
    )  # fmt: skip
