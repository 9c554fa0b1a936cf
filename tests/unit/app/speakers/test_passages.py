"""A voice selected in a recording: the stretches of a job that belong to it, and every reason for none."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.testclient import TestClient
from structlog.testing import capture_logs

from app.speakers.passages import LONGEST_MS, alone, longest
from tests.unit.app.conftest import ORG_KEY, House, client_of
from tests.unit.app.jobs.conftest import Exchange, transcript
from tests.unit.app.jobs.test_elsewhere import served
from tests.unit.app.speakers.conftest import FORM, form, opened, refused
from topics.errors import AudioError, EngineAway
from topics.jobs.options import Options, Service
from topics.jobs.payloads import Segment
from topics.keys import new_id

SPEECH = Options(speech_analysis=True)
#: The second speaker interrupts the word of the first.
TURNS = (Segment(0, 4000, "One.", 0), Segment(3500, 6000, "Two.", 1), Segment(7000, 9000, "Three.", 0))


def done(house: House, *, keep_audio_ms: int = 60_000, organization: str = "organization", **finished: Any) -> str:
    """Return a job with a transcript."""
    job = house.jobs.create(SPEECH, organization=organization, keep_audio_ms=keep_audio_ms)
    house.jobs.perform(job, Service.SPEECH, transcript(*TURNS), **finished)
    return job


def point(http: TestClient, job: str, speaker: str = "Anna_Kim", job_speaker: str = "SPEAKER_00") -> Any:
    return http.post("/api/v2/voice", json={"speaker": speaker, "job_id": job, "job_speaker": job_speaker})


@pytest.fixture
def http(house: House) -> Iterator[TestClient]:
    with client_of(house, x_org_key=ORG_KEY) as client:
        yield client


def test_speaker_is_learnt_where_nobody_else_speaks(house: House, http: TestClient) -> None:
    job = done(house)
    with capture_logs() as lines:
        entry = opened(point(http, job))
    assert (entry["speaker"], entry["samples"]) == ("Anna_Kim", 1)
    assert house.speakers.passages == [(b"audio", "audio/wav", ((0, 3500), (7000, 9000)))]
    assert "Anna" not in str(lines)
    assert job not in str(lines)
    point(http, job, "Bert", "SPEAKER_01")
    assert house.speakers.passages[1][2] == ((4000, 6000),)


def test_invalid_selections_are_rejected_with_reason(house: House, http: TestClient) -> None:
    job = done(house)
    refused(point(http, job, "Anna Kim"), "speaker is invalid. only alphabet, number and underscore are allowed")
    for unknown in ("", "0", new_id(), done(house, organization="another")):
        refused(point(http, unknown), "job not found")
    for label in ("", "SPEAKER_02", "SPEAKER_0", "Unknown 0", "SPEAKER_00\n", "SPEAKER_9999999"):
        refused(point(http, job, job_speaker=label), "the transcript of the job has no such speaker")
    gone = (
        "the audio of the job was not kept: before it is sent, set keep_audio_seconds of the project "
        "or EARSHOT_JOB_AUDIO_SECONDS"
    )
    refused(point(http, done(house, keep_audio_ms=0)), gone)
    refused(point(http, done(house, error="it broke")), "the job has no transcript")
    running = house.jobs.create(SPEECH, organization="organization", keep_audio_ms=60_000)
    refused(point(http, running), "the job has not ended yet")
    sounds = house.jobs.create(Options(sound_event_detection=True), keep_audio_ms=60_000)
    house.jobs.perform(sounds, Service.SOUND)
    refused(point(http, sounds), "the job has no transcript")
    assert house.speakers.passages == []


def test_speaker_never_alone_is_rejected(house: House, http: TestClient) -> None:
    job = house.jobs.create(SPEECH, keep_audio_ms=60_000)
    turns = (Segment(0, 4000, "One.", 0), Segment(1000, 2000, "Two.", 1), Segment(3900, 4150, "Hm.", 1))
    house.jobs.perform(job, Service.SPEECH, transcript(*turns))
    refused(point(http, job, job_speaker="SPEAKER_01"), "the speaker says too little in the job")


def test_invalid_bodies_are_rejected(house: House, http: TestClient) -> None:
    for body in (b"", b"[]", b"{", b'{"speaker":"Anna"}', b'{"speaker":"Anna","job_id":7,"job_speaker":"SPEAKER_00"}'):
        answer = http.post("/api/v2/voice", content=body, headers={"Content-Type": "application/json"})
        assert (answer.status_code, answer.json()["data"]) == (400, None)
    huge = http.post("/api/v2/voice", json={"speaker": "A" * 70_000, "job_id": "", "job_speaker": ""})
    assert huge.status_code == 413
    assert http.post("/api/v2/voice", json={}, headers={"X-Org-Key": "wrong"}).status_code == 401


def test_failures_have_registration_messages(house: House, http: TestClient) -> None:
    job = done(house)
    house.speakers.failure = EngineAway("connection refused")
    refused(point(http, job), "speaker service unavailable", 502)
    house.speakers.failure = AudioError("the audio was damaged in the log")
    refused(point(http, job), "the audio was damaged in the log")


async def test_request_is_forwarded_to_job_owner(house: House) -> None:
    owner = House()
    async with served(owner, house) as url:
        job = done(owner)
        house.jobs.elsewhere[job] = url
        body = b'{"speaker":"Anna","job_id":"%s","job_speaker":"SPEAKER_00"}' % job.encode()

        for key, status in ((ORG_KEY, 200), ("wrong", 401)):
            headers = {"x-org-key": key, "content-type": "application/json"}
            exchange = await Exchange(house, "/api/v2/voice", "POST", body, **headers).end()
            assert exchange.status == status
        assert len(owner.speakers.passages) == 1
        assert house.speakers.passages == []


class Endless:
    """Registers a voice for ever."""

    def __init__(self) -> None:
        self.began, self.stopped = asyncio.Event(), asyncio.Event()

    async def __call__(self, *_: object) -> None:
        self.began.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.stopped.set()


@pytest.mark.parametrize("kind", ["passage", "passage of another node", "file"])
async def test_registration_stops_when_client_hangs_up(
    house: House, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    owner, endless, body, content_type = House(), Endless(), form("Anna"), FORM
    for one in (house, owner):
        monkeypatch.setattr(one.speakers, "register" if kind == "file" else "register_passage", endless)
    async with served(owner, house) as url, asyncio.timeout(30):
        if kind != "file":
            job = done(owner if "node" in kind else house)
            house.jobs.elsewhere = {job: url} if "node" in kind else {}
            body = b'{"speaker":"Anna","job_id":"%s","job_speaker":"SPEAKER_00"}' % job.encode()
            content_type = "application/json"
        exchange = Exchange(house, "/api/v2/voice", "POST", body, x_org_key=ORG_KEY, content_type=content_type)
        await endless.began.wait()
        await exchange.leave()
        await endless.stopped.wait()
        assert exchange.status == 0


def test_spans_are_cut_where_others_speak() -> None:
    own = [(0, 1000), (900, 2000), (5000, 9000)]
    others = [(100, 200), (150, 300), (1900, 5500), (6000, 6100)]
    assert alone(own, others) == [(0, 100), (300, 1000), (1000, 1900), (5500, 6000), (6100, 9000)]
    assert alone(own, []) == [(0, 1000), (1000, 2000), (5000, 9000)]
    assert alone(own, [(0, 9000)]) == []


@given(*[st.lists(st.tuples(st.integers(0, 40), st.integers(0, 12)), max_size=12)] * 2)
def test_spans_match_naive_difference(own: list[tuple[int, int]], others: list[tuple[int, int]]) -> None:
    mine, theirs = ([(start, start + length) for start, length in spans] for spans in (own, others))
    found = alone(mine, theirs)
    covered = [at for start, end in found for at in range(start, end)]
    assert covered == sorted(set(covered))
    expected = {at for start, end in mine for at in range(start, end)}
    assert set(covered) == expected - {at for start, end in theirs for at in range(start, end)}


def test_longest_spans_are_selected_up_to_limit() -> None:
    spans = [(0, 1000), (2000, 2200), (3000, 3000 + LONGEST_MS - 500), (200_000, 202_000)]
    assert longest(spans) == [(3000, 3000 + LONGEST_MS - 500), (200_000, 200_500)]
    assert longest([(0, 2 * LONGEST_MS)]) == [(0, LONGEST_MS)]
    assert longest([(0, 299)]) == []
