"""Sessions, jobs and speakers through both clients, at an edge that loses answers, breaks streams and is busy."""

import asyncio
import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast
from urllib.parse import unquote

import httpx2
import pytest
from starlette.responses import JSONResponse, PlainTextResponse

import earshot_client as sdk
from app.jobs.options import invalid
from earshot_client import AsyncClient, Client, _media
from earshot_client._calls import RETRIES, sendable
from tests.contract.api import silence, tone, wav
from tests.unit.app.client.conftest import Shell
from tests.unit.app.client.edge import BUSY, FAULTY, LOST, RESULTS, TURNS, WAV, Edge, Fault
from tests.unit.app.conftest import KEY, ORG_KEY, House
from tests.unit.app.double import TAGS
from topics import errors
from topics.jobs.options import Options, Service
from topics.jobs.records import Portion, Started

PCM = sdk.SessionOptions("stream", "audio/x-raw; rate=16000; format=s16le", sdk.Sensitivity(1, {"Speech": -2}))
BLOCKS = [tone(0.5), tone(0.5), silence(0.5), tone(0.25), silence(1.0)]


def sent(client: Client, edge: Edge, *faults: Fault) -> str:
    """Send the blocks to a new session, and return its id."""
    session = client.create_session(PCM)
    edge.faults.extend(faults)
    number = session.chunk_sequence
    for block in BLOCKS:
        number = client.put_chunk(session.id, number, block)
    client.seal_session(session.id)
    return session.id


def test_stream_survives_lost_answers_and_busy_service(edge: Edge, house: House, either: Client) -> None:
    undisturbed = list(either.session_events(sent(either, edge)))
    session = sent(either, edge, LOST, BUSY, LOST)
    assert list(either.session_events(session)) == undisturbed != []
    assert either.session_status(session).state == "readonly"
    assert either.official_tags() == TAGS
    stored = house.sessions.sessions[session]
    assert (stored.chunks, len(edge.faults)) == (BLOCKS, 0)
    assert (stored.opened.default_sensitivity, stored.opened.tags_sensitivity) == (1, {"Speech": -2})
    either.delete_session(session)
    either.delete_session(session)


class Changing(io.BytesIO):
    """A file that changes once its length is known."""

    def __init__(self, first: bytes, later: bytes) -> None:
        super().__init__(first)
        self._later = later

    def seek(self, offset: int, whence: int = 0, /) -> int:
        place = super().seek(offset, whence)
        if whence == io.SEEK_END:
            super().__init__(self._later)
        return place


@pytest.mark.parametrize(("first", "later"), [(33.0, 70.0), (33.0, 20.0)])
def test_file_that_changes_during_upload_is_analysed(house: House, either: Client, first: float, later: float) -> None:
    events = list(either.detect(Changing(wav(tone(first)), wav(tone(later))), timeout=60))
    assert events[-1].end == min(first, later)
    (session,) = house.sessions.sessions.values()
    assert sum(map(len, session.chunks)) == len(wav(tone(min(first, later))))


def test_recording_that_grows_during_upload_is_cut_and_one_that_shrinks_is_refused(
    house: House, either: Client
) -> None:
    accepted = house.jobs.jobs[either.analyze_file(Changing(WAV, WAV * 2)).id].accepted
    assert accepted is not None
    assert accepted.source.size == len(WAV)
    with pytest.raises(OSError, match="became shorter"):
        either.analyze_file(Changing(WAV, WAV[:-100]))


@pytest.mark.parametrize(
    ("head", "kind"),
    [
        (WAV, "audio/wav"),
        (b"RF64\xff\xff\xff\xffWAVEds64", "audio/rf64"),
        (b"FORM\x00\x00\x00\x00AIFFCOMM", "audio/aiff"),
        (b"FORM\x00\x00\x00\x00AIFCFVER", "audio/aiff"),
        (b"OggS\x00\x02", "audio/ogg"),
        (b"fLaC\x00", "audio/flac"),
        (b"ID3\x04\x00", "application/octet-stream"),
        (b"\xff\xfb\x90\x64", "audio/mp3"),
        (b"\xff\xf3\x40\xc4", "audio/mp3"),
        (b"\0\0\0\x1cftypM4A ", "audio/mp4"),
        (b"\x1a\x45\xdf\xa3\x9f", "audio/webm"),
        (b"\xff\xf1\x50\x80", "audio/aac"),
        (b"\xff", None),
        (b"RIFF\x00\x00\x00\x00AVI LIST", None),
        (b"", None),
    ],
)
def test_content_type_is_detected_from_first_bytes(head: bytes, kind: str | None) -> None:
    assert _media.content_type(head) == kind


@pytest.mark.parametrize(
    ("given", "sent"),
    [({}, r"earshot-client/\d+\.\d+\.\d+ python/3\.\d+\.\d+"), ({"user_agent": "kennel/2"}, "kennel/2")],
)
def test_user_agent_is_sent(given: dict[str, str], sent: str, shell: Shell) -> None:
    def answer(request: httpx2.Request) -> httpx2.Response:
        agents.append(request.headers["User-Agent"])
        return httpx2.Response(200, json=[])

    agents: list[str] = []
    transport = httpx2.MockTransport(answer)
    with shell("http://earshot", transport=transport, **given) as client:
        client.official_tags()
    assert re.fullmatch(sent, agents.pop())


ASKED: list[tuple[Callable[[Any, str], object], str]] = [
    (lambda client, id: client.put_chunk(id, 0, b".."), "/audio_sessions/ID/chunks/0"),
    (lambda client, id: client.seal_session(id), "/audio_sessions/ID"),
    (lambda client, id: client.delete_session(id), "/audio_sessions/ID"),
    (lambda client, id: client.session_status(id), "/audio_sessions/ID/status"),
    (lambda client, id: client.session_results(id), "/audio_sessions/ID/results"),
    (lambda client, id: client.predict(id, b".."), "/audio_sessions/ID/predict"),
    (lambda client, id: client.session_activity(id), "/audio_sessions/ID/activity"),
    (lambda client, id: list(client.live(id)), "/audio_sessions/ID/live"),
    (lambda client, id: client.job(id), "/api/v1/jobs/ID"),
    (lambda client, id: client.delete_job(id), "/api/v1/jobs/ID"),
    (lambda client, id: client.job_scores(id), "/api/v1/jobs/ID/scores"),
    (lambda client, id: client.job_audio_link(id), "/api/v1/jobs/ID/audio"),
    (lambda client, id: client.job_captions(id, "srt"), "/api/v1/jobs/ID/captions.srt"),
    (lambda client, id: client.job_result(id), "/api/v1/jobs/ID/stream"),
    (lambda client, id: client.delete_sound(id), "/api/v1/own_sounds/ID"),
    (lambda client, id: client.delete_mark("Kettle", id), "/api/v1/own_sounds/Kettle/marks/ID"),
    (lambda client, id: client.delete_alarm_rule(id), "/api/v1/alarm_rules/ID"),
    (lambda client, id: client.rotate_destination(id), "/api/v1/destinations/ID/secret"),
    (lambda client, id: client.mark_alarm(id, 3), "/api/v1/alarms/ID/3"),
    (lambda client, id: client.send_alarm_again("s", 3, id), "/api/v1/alarms/s/3/deliveries/ID"),
]


@pytest.mark.parametrize("id", ["..", "../own_sounds/Kettle", "a?b#c%2F\n\u00fc\udcff"])
@pytest.mark.parametrize(("ask", "path"), ASKED)
def test_ids_and_names_lead_to_no_other_path(ask: Callable[[Client, str], object], path: str, id: str) -> None:
    """A program may take them from its own users."""

    def refuse(request: httpx2.Request) -> httpx2.Response:
        asked.append(request.url.raw_path.decode("ascii").partition("?")[0])
        return httpx2.Response(400, json={"error": "no"})

    asked: list[str] = []
    client = Client("http://earshot", KEY, transport=httpx2.MockTransport(refuse))
    with client, pytest.raises(sdk.RequestRefused, match="no"):
        ask(client, id)
    start, end = path.split("ID")
    quoted = asked[0].removeprefix(start).removesuffix(end)
    assert asked == [f"{start}{quoted}{end}"]
    assert not set(quoted) & set("./")
    assert unquote(quoted) == sendable(id)


def test_job_lifecycle_survives_network_faults(edge: Edge, house: House, wav: Path, either: Client) -> None:
    edge.faults.extend([BUSY, LOST])
    with wav.open("rb") as file:
        file.seek(100)
        options = sdk.JobOptions(speech_analysis=True, speech_lang="ko")
        job = either.analyze_file(file, options, idempotency_key="a key of mine")
    assert (edge.asked, list(house.jobs.jobs), job.status) == (["POST analyze_file"] * 3, [job.id], "accepted")
    assert {request.headers["idempotency-key"] for request in edge.requests} == {"a key of mine"}
    assert int(edge.requests[-1].headers["content-length"]) > len(WAV)
    sent = house.jobs.jobs[job.id]
    assert sent.accepted is not None
    assert sent.accepted.options == Options(speech_analysis=True, speech_lang="ko")
    assert b"".join(sent.parts.values()) == WAV
    assert (sent.accepted.source.filename, sent.accepted.source.declared) == ("hörbar.wav", "audio/wav")
    house.jobs.conclude(job.id, Started(Service.SPEECH, "first"))
    house.jobs.conclude(job.id, Portion(Service.SPEECH, "first", 0, b"", 0.5))
    edge.faults.extend([JSONResponse({"error": "no owner"}, 503), 4, 3, 11])  # An event has four lines.
    stream = either.job_events(job.id)
    events = [next(stream)]
    edge.results = RESULTS
    events.extend(stream)
    assert [one.kind for one in events] == ["progress", "partial_result", "progress", "completed"]
    seen = [request.headers.get("last-event-id") for request in edge.requests[3:]]
    assert seen == [None, None, events[0].id, events[0].id, events[2].id]
    assert (events[0].progress.progress, events[0].progress.services["speech_analysis"].status) == (0.5, "running")
    assert events[-1].result == either.job(job.id).result == either.job_result(job.id)
    assert [one.kind for one in either.job_events(job.id, events[2].id)] == ["completed"]
    assert either.job_captions(job.id, "srt") == (
        "1\n00:00:00,500 --> 00:00:07,500\nUnknown 0: Sit!\n\n2\n00:29:31,830 --> 00:29:38,830\ndata: [good] dög\n\n"
    )
    with pytest.raises(ValueError, match="srt or vtt, not 'ass'"):
        either.job_captions(job.id, cast(Any, "ass"))
    either.delete_job(job.id)
    either.delete_job(job.id)
    for ask in (either.job, lambda id: list(either.job_events(id))):
        with pytest.raises(sdk.JobNotFound, match="Not Found"):
            ask(job.id)


def test_results_are_typed(edge: Edge, wav: Path, either: Client) -> None:
    edge.results = RESULTS
    everything = sdk.JobOptions(sound_event_detection=True, speech_analysis=True, audio_insights=True, caption=True)
    result = either.job_result(either.analyze_file(wav).id)
    assert result.sound_event_detection
    assert [(one.start, [tag.name for tag in one.classes]) for one in result.sound_event_detection.results] == [
        (0, ["Dog_bark"]),
        (1, ["Dog_bark"]),
        (2, []),
    ]
    assert result.speech_analysis
    said = sdk.Turn(0.5, 3661.25, "Sit! \u2028 data: [good] dög", "SPEAKER_00", "Unknown 0", -1.0)
    assert result.speech_analysis.results == (said,)
    assert (result.errors, result.caption) == ({}, None)
    edge.results = FAULTY
    faulty = either.job_result(either.analyze_file(wav, everything).id)
    assert faulty.errors == {"speech_analysis": "ASR Engine API error: 500"}
    assert faulty.audio_insights
    assert faulty.audio_insights.result
    assert faulty.audio_insights.result.notable_events == ("Dog_bark",)


def test_rejection_messages_include_details(edge: Edge, wav: Path, either: Client) -> None:
    edge.faults.extend([invalid("extra_forbidden", "no", "options", "spech"), errors.AudioError("the audio is empty")])
    with pytest.raises(sdk.RequestRefused, match=r"^Validation error: body\.options\.spech \(extra_forbidden\)$"):
        either.analyze_file(wav)
    with pytest.raises(sdk.UnknownFormat, match=r"^the audio is empty$"):
        either.analyze_file(wav)


def test_damaged_compression_raises(edge: Edge, wav: Path, either: Client) -> None:
    edge.results = RESULTS
    job = either.analyze_file(wav).id
    for call in (lambda: either.analyze_file(wav), lambda: list(either.job_events(job))):
        damaged = PlainTextResponse("not compressed", headers={"Content-Encoding": "gzip"})
        edge.faults.extend([damaged] * (1 + len(RETRIES)))
        with pytest.raises(sdk.ServiceUnreachable, match="decompress"):
            call()
        edge.faults.clear()


ANNA = sdk.SpeakerProfile("Anna_Kim", "2026-01-02T03:04:05.678Z", len(WAV), 1, True)


def test_speaker_lifecycle_survives_faults(edge: Edge, house: House, wav: Path, either: Client) -> None:
    edge.faults.extend([BUSY, LOST, LOST])
    assert either.speakers() == ()
    edge.faults.append(BUSY)
    assert either.add_voice("Anna_Kim", wav) == ANNA
    anna = house.speakers.organizations["organization"]["Anna_Kim"]
    assert anna.voices == [WAV]
    file = io.BytesIO(WAV)
    file.seek(100)
    assert either.add_voice("Anna_Kim", file).samples == 2
    assert anna.voices[1] == WAV
    assert [one.name for one in either.speakers()] == ["Anna_Kim"]
    assert either.name_speaker("Anna_Kim", "Anna Müller").display_name == "Anna Müller"
    assert either.speakers()[0].display_name == "Anna Müller"
    assert either.name_speaker("Anna_Kim", None).display_name is None
    anna.compatible = False
    assert either.re_enroll("Anna_Kim") == sdk.ReEnrollment("Anna_Kim", 2, 0)
    either.delete_speaker("Anna_Kim")
    assert either.speakers() == ()


def test_turns_are_typed(edge: Edge, house: House, wav: Path, either: Client) -> None:
    edge.faults.extend([LOST, BUSY])
    house.speakers.turns = TURNS
    anna, unknown, short = either.recognize(wav)
    assert anna == sdk.SpeakerTurn(
        30, 29_980, "Good [morning]\x1b[2J.", 0, "Anna_Kim", 0.731, organization="organization"
    )
    assert [(one.is_registered, one.unlabeled) for one in (anna, unknown, short)] == [
        (True, False),
        (False, False),
        (False, True),
    ]


def test_unsendable_key_raises() -> None:
    for make in Client, AsyncClient:
        for key, org_key in ("line\n", ""), ("", "kl\u00fc"):
            with pytest.raises(sdk.WrongKey):
                make("http://127.0.0.1:9", key, org_key=org_key)


@pytest.mark.parametrize("value", ["kl\u00fc", "two\nlines", " "])
def test_unsendable_header_raises(value: str, unhurried: Shell) -> None:
    with pytest.raises(ValueError, match=r"User-Agent: .* cannot be sent in an HTTP header"):
        unhurried("http://127.0.0.1:9", user_agent=value)
    with unhurried("http://127.0.0.1:9") as client:
        for name, call in (
            ("Idempotency-Key", lambda: client.analyze(b"", 16000, idempotency_key=value)),
            ("Idempotency-Key", lambda: client.analyze_file(b"", idempotency_key=value)),
            ("Last-Event-ID", lambda: list(client.job_events("j", value))),
        ):
            with pytest.raises(ValueError, match=rf"{name}: .* cannot be sent in an HTTP header"):
                call()


def test_closed_client_raises(url: str) -> None:
    async def use_closed() -> None:
        async with AsyncClient(url) as client:
            pass
        with pytest.raises(ValueError, match="the client is closed"):
            await client.official_tags()
        with pytest.raises(ValueError, match="the client is closed"):
            await anext(client.live("s"))
        with pytest.raises(ValueError, match="the client is closed"):
            client.socket()

    with Client(url) as client:
        pass
    for call in client.official_tags, client.socket, lambda: list(client.live("s")):
        with pytest.raises(ValueError, match="the client is closed"):
            call()
    asyncio.run(use_closed())


@pytest.mark.parametrize("url", ["localhost:8080", "ftp://nobody:secret@localhost"])
@pytest.mark.parametrize(
    "ask",
    [lambda client: client.official_tags(), lambda client: list(client.live("s")), lambda client: client.socket()],
)
def test_url_of_no_service_is_not_tried_again(url: str, ask: Callable[[Client], object], unhurried: Shell) -> None:
    def pause(seconds: float) -> None:
        raise AssertionError

    with (
        unhurried(url, sleep=pause) as client,
        pytest.raises(sdk.ServiceUnreachable, match="http:// or https://") as error,
    ):
        ask(client)
    assert "secret" not in str(error.value)


@pytest.mark.parametrize(
    ("fault", "ask", "error", "message"),
    [
        (LOST, "add_voice", sdk.ServiceUnreachable, "."),
        (LOST, "delete_speaker", sdk.ServiceUnreachable, "."),
        (errors.Unavailable("a file is deleted later"), "delete_speaker", sdk.ServiceBusy, "^a file is deleted later$"),
        (errors.EngineAway("it is away"), "add_voice", sdk.EngineUnavailable, "^speaker service unavailable$"),
        (errors.EngineAway("it is away"), "recognize", sdk.EngineUnavailable, "^recognition service unavailable$"),
        (errors.BadRequest("no multipart"), "recognize", sdk.RequestRefused, "^no multipart$"),
        (PlainTextResponse("Bad Gateway", 502), "recognize", sdk.EngineUnavailable, "the service answered 502"),
    ],
)
def test_failed_speaker_requests_are_not_retried(
    edge: Edge, wav: Path, shell: Shell, fault: Fault, ask: str, error: type[Exception], message: str
) -> None:
    """Removals never, others if they may have had an effect or the engine has had its time."""
    edge.faults.append(fault)
    given = {"add_voice": ("Anna_Kim", wav), "delete_speaker": ("Anna_Kim",), "recognize": (wav,)}[ask]
    with shell(edge.url, org_key=ORG_KEY) as client, pytest.raises(error, match=message) as raised:
        getattr(client, ask)(*given)
    assert raised.type is error
    assert len(edge.requests) == 1


def test_rejection_has_service_message(wav: Path, either: Client) -> None:
    with pytest.raises(sdk.SpeakerRequestRefused, match="only alphabet, number and underscore") as raised:
        either.add_voice("Anna Kim", wav)
    assert raised.value.status == 200
    with pytest.raises(sdk.SpeakerRequestRefused, match="an empty file"):
        either.add_voice("Anna_Kim", io.BytesIO())
    for call in (either.delete_speaker, either.re_enroll):
        with pytest.raises(sdk.SpeakerRequestRefused, match="speaker not found"):
            call("nobody")


@pytest.mark.parametrize("body", [{"data": None, "error": "", "debug": ""}, {"data": {}}, [1], {"error": ""}])
def test_invalid_envelope_raises(edge: Edge, body: object, shell: Shell) -> None:
    edge.faults.append(JSONResponse(body))
    with (
        shell(edge.url, org_key=ORG_KEY) as client,
        pytest.raises(sdk.ServiceUnreachable, match="is not an Earshot service"),
    ):
        client.speakers()


@pytest.mark.parametrize(("key", "reason"), [("", "x_org_key required"), ("another", "organization not found")])
def test_wrong_key_raises(url: str, wav: Path, key: str, reason: str, shell: Shell) -> None:
    with shell(url, org_key=key) as client, pytest.raises(sdk.WrongKey, match=reason):
        client.add_voice("Anna_Kim", wav)
    with shell(url, KEY, org_key=key) as client, pytest.raises(sdk.WrongKey, match=reason):
        client.speakers()
