"""API3, broken object property level authorization: fields that clients must not set, and fields they must not see."""

import json

import pytest

from tests.attacks.owasp.conftest import ENGINE_KEY, Target, recording
from tests.contract.api import RAW, UNKNOWN, Api, tone
from tests.contract.jobs import SOUND, Jobs
from tests.process import ADMIN_KEY, ask

INNER = ("organization", "digest", "upload", "offset_ms", "free_seconds", "billed", "command", "partition", "key")


@pytest.mark.parametrize(
    "more",
    [
        {"session_id": UNKNOWN},
        {"project": "another", "organization": "another"},
        {"state": "readonly", "next": 7, "model": "../../etc/passwd"},
        {"__proto__": {"admin": True}, "constructor": {}},
    ],
)
def test_internal_fields_cannot_be_set(api: Api, more: dict[str, object]) -> None:
    answer = api.post({"type": "stream", "content_type": RAW, **more})
    assert answer.status_code in (200, 400)
    if answer.status_code == 200:
        session = answer.json()["session_id"]
        assert session != UNKNOWN
        assert api.put(session, 0, tone(1)).status_code == 200, "it is writable, from its first chunk"


def test_session_patch_ignores_unknown_fields(api: Api) -> None:
    session = api.create()
    answer = api.http.patch(
        f"/audio_sessions/{session}", json={"type": "file", "content_type": "audio/mp3", "key": "k"}
    )
    assert answer.status_code in (204, 400)
    assert api.put(session, 0, tone(1)).status_code == 200


def test_project_creation_rejects_unknown_fields(target: Target) -> None:
    made = target.operate("POST", "/projects", json={"name": "greedy", "organization": "Mallory"})
    shown = json.dumps(made["project"])
    assert made["key"] not in shown
    answer = ask(
        "POST",
        f"{target.admin}/admin/v1/projects",
        json={"name": "greedier", "organization": "Mallory", "free_seconds": 10**9, "id": "mine", "key": "k" * 30},
        headers={"authorization": f"Bearer {ADMIN_KEY}"},
    )
    assert answer.status_code == 400, "unknown fields are refused"


def test_answers_show_no_internals_or_secrets(target: Target, api: Api, jobs: Jobs) -> None:
    session, job = api.create(), jobs.accepted(recording(), {**SOUND, "speech_analysis": True})
    api.send(session, tone(2))
    jobs.completed(job)
    answers = [
        jobs.get(job),
        api.status(session),
        api.results(session),
        ask("GET", f"{target.url}/api/v1/jobs/{job}/stream"),
        ask("GET", f"{target.admin}/metrics"),
        ask("GET", f"{target.url}/"),
    ]
    for answer in answers:
        assert answer.status_code == 200
        text = answer.text
        assert [name for name in INNER if f'"{name}":' in text] == []
        for secret in (target.alice.key, target.alice.org_key, ADMIN_KEY, ENGINE_KEY, str(target.service.data)):
            assert secret not in text
    for open_to_all in answers[-2:]:
        assert session not in open_to_all.text
        assert job not in open_to_all.text
