"""Requests for another node's session: passed on once, with what they carry, and answered as the owner answered."""

from __future__ import annotations

import base64

import pytest
from starlette.testclient import TestClient

from tests.contract.api import Api, tone
from tests.contract.conftest import api
from tests.process import free_port
from tests.unit.app.conftest import House, Running
from topics.keys import new_id

__all__ = ["api"]

DATA = {"data": base64.b64encode(tone(1.0)).decode()}


@pytest.fixture
def far(house: House, service: Running, api: Api) -> str:
    """A session of the other node, known here to be there."""
    session = api.create()
    house.sessions.elsewhere[session] = service.url
    return session


def test_an_upload_and_a_read_are_passed_on(http: TestClient, far: str) -> None:
    """The owner's answers come back as they are; nothing is appended here."""
    put = http.put(f"/audio_sessions/{far}/chunks/0", json=DATA, headers={"Idempotency-Key": "one"})
    assert (put.status_code, put.json()) == (200, {"session_id": far, "chunk_sequence": 1})
    again = http.put(f"/audio_sessions/{far}/chunks/0", json=DATA, headers={"Idempotency-Key": "one"})
    assert again.json() == put.json(), "the header is passed on"
    page = http.get(f"/audio_sessions/{far}/status", params={"count": "1"}).json()
    assert page["inference"]["page"]["count"] == 1, "the query is passed on"
    assert http.patch(f"/audio_sessions/{far}", json={"make_readonly": True}).status_code == 204
    late = http.put(f"/audio_sessions/{far}/chunks/1", json=DATA)
    assert (late.status_code, late.headers["content-type"]) == (403, "application/json")
    assert http.delete(f"/audio_sessions/{far}").status_code == 204


def test_a_request_is_passed_on_once(http: TestClient, house: House, far: str) -> None:
    """Where two nodes disagree about the owner, the second answers."""
    answer = http.get(f"/audio_sessions/{far}/status", headers={"X-Earshot-Forwarded": "1"})
    assert answer.status_code == 404


def test_an_owner_that_does_not_answer_is_503(http: TestClient, house: House) -> None:
    """It may be dying; its partitions come to another node."""
    session = new_id()
    house.sessions.elsewhere[session] = f"http://127.0.0.1:{free_port()}"
    answer = http.get(f"/audio_sessions/{session}/status")
    assert answer.status_code == 503
    assert int(answer.headers["retry-after"]) >= 1
