"""`earshot analyze` and `earshot jobs` as a user types them, against the stub."""

import json
from pathlib import Path

import pytest

from tests.unit.app.client.conftest import Command
from tests.unit.app.client.jobs_stub import FAULTY, RESULT, JobStub, Sent, error
from tests.unit.app.conftest import KEY


@pytest.fixture
def analyze(earshot: Command, jobs: JobStub) -> Command:
    return lambda *arguments: earshot("analyze", *arguments, "--url", jobs.url, project_key=KEY)


def test_analyze_prints_summary(jobs: JobStub, wav: Path, analyze: Command) -> None:
    code, out, err = analyze(wav)
    assert (code, err) == (0, "")
    assert wav.name in "".join(out[:3])
    text = [" ".join(line.split()) for line in out]
    assert "0:00.5 1:01:01.2 Unknown 0 Sit! data: [good] dog" in text, "brackets are no markup"
    assert "0:00 0:03 0.80 Dog_bark" in text, "two windows are one stretch"
    assert "note: the engine has one language" in text
    (sent,) = jobs.jobs.values()
    assert sent.options == {"sound_event_detection": True, "speech_analysis": True}


def test_overlapping_speakers_are_shown(jobs: JobStub, wav: Path, analyze: Command) -> None:
    (turn,) = RESULT["speech_analysis"]["results"]
    times = {"start_time_sec": 1.0, "end_time_sec": 2.0}
    others = [
        {**times, "speaker": f"SPEAKER_0{number}", "speaker_name": name} for number, name in ((1, "Anna"), (2, None))
    ]
    turns = [{**turn, "overlap_sec": 3.0, "overlaps": [*others, others[0]]}, {**turn, "transcript": "Stay!"}]
    jobs.result = {**RESULT, "speech_analysis": {"status": "success", "results": turns}}
    text = [" ".join(line.split()) for line in analyze(wav)[1]]
    assert "from to speaker at once text" in text
    assert "0:00.5 1:01:01.2 Unknown 0 Anna, SPEAKER_02 Sit! data: [good] dog" in text
    assert "0:00.5 1:01:01.2 Unknown 0 Stay!" in text


def test_failed_service_is_reported_beside_other_results(jobs: JobStub, wav: Path, analyze: Command) -> None:
    jobs.result = FAULTY
    code, out, err = analyze(wav, "--insights")
    assert (code, err) == (1, f"earshot: {wav}: speech_analysis: ASR Engine API error: 500\n")
    text = [" ".join(line.split()) for line in out]
    assert "A dog barks." in text
    assert "environment a yard" in text
    assert not any("no words" in line for line in text)


def test_empty_results_are_reported(jobs: JobStub, wav: Path, analyze: Command) -> None:
    empty = {"status": "success", "results": []}
    jobs.result = {"sound_event_detection": empty, "speech_analysis": empty, "metadata": {}}
    _, out, _ = analyze(wav)
    # A long path is wrapped.
    assert ("".join(out[:-3]), out[-3:]) == (str(wav), ["no words", "no sound recognised", ""])


def test_control_characters_are_removed_from_output(jobs: JobStub, wav: Path, analyze: Command) -> None:
    jobs.result = {"caption": {"status": "success", "result": {"caption": "a\x1b[2J dog\x07"}}, "metadata": {}}
    _, out, _ = analyze(wav)
    assert "a[2J dog" in out


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        (["--no-speech"], {"sound_event_detection": True}),
        (["--no-sounds", "--speakers"], {"speech_analysis": True, "speaker_profile": True}),
        (
            ["--insights", "--prompt", "dogs"],
            {
                "sound_event_detection": True,
                "speech_analysis": True,
                "audio_insights": True,
                "caption": True,
                "audio_insights_prompt": "dogs",
            },
        ),
        (
            ["--no-sounds", "--min-speakers", "2", "--max-speakers", "4"],
            {"speech_analysis": True, "min_speakers": 2, "max_speakers": 4},
        ),
        (
            ["--no-sounds", "--translate", "ko", "--lang", "en"],
            {"speech_analysis": True, "translation": True, "translation_target_lang": "ko", "speech_lang": "en"},
        ),
    ],
)
def test_flags_become_job_options(
    jobs: JobStub, wav: Path, analyze: Command, arguments: list[str], options: dict[str, object]
) -> None:
    assert analyze(wav, *arguments, "--idempotency-key", "k")[0] == 0
    (sent,) = jobs.jobs.values()
    assert (sent.options, sent.headers["idempotency-key"]) == (options, "k")


def test_json_output(wav: Path, analyze: Command) -> None:
    code, out, err = analyze(wav, wav, "--json")
    assert (code, err) == (0, "")
    # Not `splitlines`, because the transcript contains another line separator.
    assert [json.loads(line) for line in "\n".join(out).replace("\n data:", "\u2028 data:").split("\n")] == [RESULT] * 2


def test_captions_are_written_to_files(wav: Path, analyze: Command, tmp_path: Path) -> None:
    srt, vtt = tmp_path / "yard.srt", tmp_path / "yard.vtt"
    assert analyze(wav, "--srt", srt, "--vtt", vtt)[0] == 0
    assert srt.read_text(encoding="utf-8") == "captions as srt – héllo"
    assert vtt.read_text(encoding="utf-8") == "captions as vtt – héllo"
    code, out, err = analyze(wav, "--srt", tmp_path / "nowhere" / "yard.srt")
    assert (code, err) == (1, f"earshot: {tmp_path / 'nowhere' / 'yard.srt'}: No such file or directory\n")
    assert any("Dog_bark" in line for line in out), "the result was there"


def test_failed_file_does_not_stop_others(jobs: JobStub, wav: Path, analyze: Command, tmp_path: Path) -> None:
    jobs.refusals.append(error(402, "exceeded maximum usage limit"))
    code, out, err = analyze(wav, tmp_path / "none.wav", wav)
    assert code == 1
    assert err.splitlines() == [
        f"earshot: {wav}: exceeded maximum usage limit",
        f"earshot: {tmp_path / 'none.wav'}: No such file or directory",
    ]
    assert sum("Dog_bark" in line for line in out) == 1


def test_deleted_job_is_reported(jobs: JobStub, wav: Path, analyze: Command) -> None:
    jobs.removing = True
    assert analyze(wav) == (1, [], f"earshot: {wav}: the job was removed\n")


def test_lost_connection_reports_job_id(
    jobs: JobStub, wav: Path, analyze: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("earshot_client._event_stream.RETRIES", ())
    jobs.connections.append(b": ping\n\n")
    code, out, err = analyze(wav)
    (job,) = jobs.jobs
    assert (code, out) == (1, [])
    assert len(job) > 8, "an id opens what it names: only a terminal gets the whole"
    assert err.splitlines() == [
        f"earshot: the service continues job {job[:8]}; `earshot jobs list` shows its id",
        f"earshot: no answer from {jobs.url}: the stream ended; set --url or EARSHOT_URL to the address of the service",
    ]


def test_single_file_options_reject_several_files(jobs: JobStub, wav: Path, analyze: Command) -> None:
    code, _, err = analyze(wav, wav, "--srt", "a.srt")
    assert (code, err) == (1, "earshot: --srt, --vtt and --idempotency-key are for one file\n")
    assert jobs.uploads == 0


def test_prompt_without_insights_is_rejected(jobs: JobStub, wav: Path, analyze: Command) -> None:
    assert analyze(wav, "--prompt", "dogs") == (1, [], "earshot: --prompt needs --insights\n")
    assert jobs.uploads == 0


def test_wrong_key_aborts_all_files(jobs: JobStub, wav: Path, earshot: Command) -> None:
    code, _, err = earshot("analyze", str(wav), str(wav), "--url", jobs.url, project_key="another")
    assert (code, jobs.uploads) == (1, 1)
    assert "does not know this project key" in err


@pytest.fixture
def known(jobs: JobStub) -> JobStub:
    jobs.jobs = {name: Sent({}, f"{name}.wav", "audio/wav", b"", {}) for name in ("j1", "j2")}
    return jobs


@pytest.fixture
def run(earshot: Command, known: JobStub) -> Command:
    return lambda *words: earshot("jobs", *words, "--url", known.url, project_key=KEY)


def test_jobs_are_listed(known: JobStub, run: Command) -> None:
    code, out, err = run("list")
    assert (code, err) == (0, "")
    assert [line.split() for line in out if line] == [
        ["job", "status", "created", "seconds", "failed", "file"],
        *([name, "completed", "now", "3.5", "caption", f"{name}.wav"] for name in known.jobs),
    ]
    _, out, _ = run("list", "--json", "-n", 1, "--state", "completed")
    assert [one["job"] for one in json.loads("\n".join(out))] == ["j1"]


def test_stored_result_is_shown(known: JobStub, run: Command, tmp_path: Path) -> None:
    code, out, err = run("show", "j2", "--srt", tmp_path / "j2.srt")
    assert (code, err) == (0, "")
    assert any("Dog_bark" in line for line in out)
    assert (tmp_path / "j2.srt").read_text(encoding="utf-8") == "captions as srt – héllo"
    known.result = FAULTY
    assert run("show", "j2", "--json")[::2] == (
        1,
        "earshot: j2: speech_analysis: ASR Engine API error: 500\n",
    )


def test_unreachable_service_is_one_line(earshot: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("earshot_client._event_stream.RETRIES", ())
    monkeypatch.setattr("earshot_client._calls.RETRIES", ())
    for words in (["list"], ["show", "j1"], ["delete", "j1", "--yes"]):
        code, out, err = earshot("jobs", *words, "--url", "http://127.0.0.1:9", project_key=KEY)
        assert (code, out, len(err.splitlines())) == (1, [], 1)
        assert err.startswith("earshot: no answer from http://127.0.0.1:9: ")


def test_job_is_deleted(known: JobStub, run: Command) -> None:
    assert run("delete", "j1", "--yes")[0] == 0
    assert list(known.jobs) == ["j2"]
    code, out, err = run("show", "j1")
    assert (code, out) == (1, [])
    assert len(err.splitlines()) == 1
