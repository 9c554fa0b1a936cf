"""API6, unrestricted access to sensitive business flows: getting more for free than the plan allows."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.attacks.owasp.conftest import Target, recording
from tests.contract.jobs import Jobs


@pytest.fixture(scope="module")
def spent(target: Target) -> str:
    """The key of a project whose free second is used up."""
    key = target.project("poor", "Mallory")
    target.operate("PUT", "/projects/poor/plan", json={"free_seconds": 1})
    with Jobs(target, key) as jobs:
        jobs.result(recording(3))
    target.charged("poor")
    return key


def test_deleting_job_does_not_refund_free_seconds(target: Target) -> None:
    key = target.project("tidy", "Mallory")
    target.operate("PUT", "/projects/tidy/plan", json={"free_seconds": 1})
    with Jobs(target, key) as jobs:
        job = jobs.accepted(recording(3))
        jobs.completed(job)
        target.charged("tidy")
        assert jobs.http.delete(f"/jobs/{job}", headers=jobs.keyed).status_code == 204
        assert jobs.file(recording()).status_code == 402


def test_repeated_job_is_charged_once(target: Target) -> None:
    """Even if it is sent many times at once."""
    key = target.project("eager", "Mallory")
    with Jobs(target, key) as jobs, ThreadPoolExecutor(8) as pool:
        audio = recording(2)
        sent = list(pool.map(lambda _: jobs.accepted(audio, Idempotency_Key="once"), range(16)))
        assert len(set(sent)) == 1
        jobs.completed(sent[0])
        answer = jobs.file(recording(3), Idempotency_Key="once")
        assert answer.status_code == 409, "nor is it another job under the same key"
    row = target.charged("eager")
    assert (row["jobs"], row["audio_seconds"]) == (1, 2.0)


def test_headers_do_not_bypass_spent_plan(target: Target, spent: str) -> None:
    """Only the operator creates projects; no client request creates a new allowance."""
    with Jobs(target, spent) as jobs:
        for header in ("X-Project", "X-Forwarded-For", "X-Earshot-Forwarded", "X-Org-Key"):
            assert jobs.file(recording(), **{header.replace("-", "_"): "another"}).status_code == 402
