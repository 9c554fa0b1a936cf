"""`earshot jobs` as a user types it, against the stub."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.app.client.jobs_stub import FAULTY, JobStub, Sent
from tests.unit.app.client.stub import KEY
from tests.unit.app.client.test_commands import earshot


@pytest.fixture
def known(jobs: JobStub) -> JobStub:
    """A service with two jobs."""
    jobs.jobs = {name: Sent({}, f"{name}.wav", "audio/wav", b"", {}) for name in ("j1", "j2")}
    return jobs


def run(capsys: pytest.CaptureFixture[str], stub: JobStub, *words: object) -> tuple[int, list[str], str]:
    return earshot(capsys, "jobs", *map(str, words), "--url", stub.url, project_key=KEY)


def test_jobs_are_listed(known: JobStub, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, known, "list")
    assert (code, err) == (0, "")
    assert [line.split() for line in out if line] == [
        ["job", "status", "created", "seconds", "failed", "file"],
        *([name, "completed", "now", "3.5", "caption", f"{name}.wav"] for name in known.jobs),
    ]
    _, out, _ = run(capsys, known, "list", "--json", "-n", 1, "--state", "completed")
    assert [one["job"] for one in json.loads("\n".join(out))] == ["j1"]


def test_a_result_is_read_later(known: JobStub, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, out, err = run(capsys, known, "show", "j2", "--srt", tmp_path / "j2.srt")
    assert (code, err) == (0, "")
    assert any("Dog_bark" in line for line in out)
    assert (tmp_path / "j2.srt").read_text(encoding="utf-8") == "captions as srt – héllo"
    known.result = FAULTY
    assert run(capsys, known, "show", "j2", "--json")[::2] == (
        1,
        "earshot: j2: speech_analysis: ASR Engine API error: 500\n",
    )


def test_a_job_is_deleted(known: JobStub, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, known, "delete", "j1", "--yes")[0] == 0
    assert list(known.jobs) == ["j2"]
    code, out, err = run(capsys, known, "show", "j1")
    assert (code, out) == (1, [])
    assert len(err.splitlines()) == 1
