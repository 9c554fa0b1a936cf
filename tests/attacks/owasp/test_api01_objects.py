"""API1, broken object level authorization: ids of other tenants, wherever an id is accepted."""

import pytest

from tests.attacks.owasp.conftest import Target, recording
from tests.contract.api import UNKNOWN, Api
from tests.contract.jobs import Jobs
from tests.process import ask


@pytest.fixture(scope="module")
def job(target: Target) -> str:
    with Jobs(target) as jobs:
        return jobs.accepted(recording())


@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_foreign_job_looks_like_missing_job(target: Target, job: str, method: str) -> None:
    keyed = {"X-Api-Key": target.mallory.key}
    others = ask(method, f"{target.url}/api/v1/jobs/{job}", headers=keyed)
    nobodys = ask(method, f"{target.url}/api/v1/jobs/{UNKNOWN}", headers=keyed)
    assert (others.status_code, others.content) == (nobodys.status_code, nobodys.content)
    assert others.status_code == 404
    with Jobs(target) as jobs:
        assert jobs.get(job).status_code == 200, "and it was not deleted"


def test_session_and_job_ids_are_not_interchangeable(target: Target, api: Api, job: str) -> None:
    session = api.create()
    keyed = {"X-Api-Key": target.alice.key}
    assert ask("GET", f"{target.url}/api/v1/jobs/{session}", headers=keyed).status_code == 404
    assert ask("GET", f"{target.url}/api/v1/jobs/{session}/stream").status_code == 404
    assert api.status(job).status_code == 404


def test_idempotency_keys_are_scoped_to_project(target: Target, jobs: Jobs) -> None:
    first = jobs.accepted(recording(), Idempotency_Key="the same")
    with Jobs(target, target.mallory.key) as mallory:
        assert mallory.accepted(recording(), Idempotency_Key="the same") != first
