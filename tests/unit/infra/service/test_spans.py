"""Spans: their names, what they tell and what they do not, and how those of several nodes hang together."""

import json
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import Decision
from opentelemetry.trace import SpanKind, StatusCode, format_span_id, format_trace_id
from starlette.testclient import TestClient
from structlog.contextvars import get_contextvars

from infra.service.spans import Ids, Spans, ids_of
from streams.clients.transcriptions import TranscriptionClient
from tests.contract.api import RAW, tone, wav
from tests.unit.app.conftest import KEY as PROJECT_KEY
from tests.unit.app.conftest import House, behind_a_server, client_of, serving
from tests.unit.streams.clients.http_engine import Asked, HttpEngine, reply
from tests.unit.streams.jobs.desk import Desk, ScriptedService, name
from tests.unit.streams.sessions.studio import FILE, STREAM, pieces, playing, sound
from topics import traces
from topics.errors import AudioError, ServiceFault
from topics.jobs.options import Options, Service
from topics.sessions.records import Sealed

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PUT = "PUT /audio_sessions/{session_id}/chunks/{chunk_sequence}"
PROCESS = "process earshot.session.command.v1"
ONE = "A" * 24
OPEN = {"type": "stream", "content_type": RAW}

Found = Callable[[], dict[str, list[ReadableSpan]]]


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> Iterator[Found]:
    """Trace what the test makes; return the ended spans by name."""
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_always_on")
    yield from _tracing(monkeypatch)


@pytest.fixture
def unsampled(monkeypatch: pytest.MonkeyPatch) -> Iterator[Found]:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_always_off")
    yield from _tracing(monkeypatch)


def _tracing(monkeypatch: pytest.MonkeyPatch) -> Iterator[Found]:
    exporter = InMemorySpanExporter()
    spans = Spans("node-1", "kafka", SimpleSpanProcessor(exporter))
    monkeypatch.setattr(traces, "tracer", spans)

    def found() -> dict[str, list[ReadableSpan]]:
        named: dict[str, list[ReadableSpan]] = {}
        for span in sorted(exporter.get_finished_spans(), key=lambda span: span.start_time or 0):
            named.setdefault(span.name, []).append(span)
        return named

    yield found
    spans.stop()


def ids(span: ReadableSpan) -> Ids:
    assert span.context is not None
    return span.context.trace_id, span.context.span_id


def parent(span: ReadableSpan) -> Ids | None:
    return None if span.parent is None else (span.parent.trace_id, span.parent.span_id)


def linked(span: ReadableSpan) -> list[Ids]:
    return [(link.context.trace_id, link.context.span_id) for link in span.links]


def about(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def told(spans: dict[str, list[ReadableSpan]]) -> str:
    """Return everything that is sent of spans, besides their times."""
    return json.dumps([json.loads(span.to_json()) for some in spans.values() for span in some])


# --- requests -------------------------------------------------------------------------------------------------------


def test_request_is_a_span_by_its_route_in_the_trace_of_its_client(found: Found) -> None:
    house = House()
    with client_of(house, x_api_key=PROJECT_KEY) as http:
        made = http.post("/audio_sessions/", json=OPEN)
        session = made.json()["session_id"]
        headers = {"traceparent": f"00-{TRACE}-{PARENT}-01", "tracestate": "vendor=x"}
        assert http.get(f"/audio_sessions/{session}/status?count=1", headers=headers).status_code == 200
        assert http.get(f"/audio_sessions/{ONE}/status", headers={"traceparent": "00-malformed"}).status_code == 404
        assert http.request("BREW", f"/audio_sessions/{session}").status_code == 405
    spans = found()
    read, missing = spans["GET /audio_sessions/{session_id}/status"]
    assert about(read) == {
        "http.request.method": "GET",
        "http.route": "/audio_sessions/{session_id}/status",
        "url.scheme": "http",
        "http.response.status_code": 200,
        "earshot.session.id": session[:8],
    }
    assert (read.kind, read.status.status_code) == (SpanKind.SERVER, StatusCode.UNSET)
    assert parent(read) == (int(TRACE, 16), int(PARENT, 16))
    assert read.context is not None
    assert read.context.trace_state.to_header() == "vendor=x"
    # A fault of the client is no error of the server.
    assert (about(missing)["http.response.status_code"], missing.status.status_code) == (404, StatusCode.UNSET)
    assert parent(missing) is None
    (strange,) = spans["HTTP /audio_sessions/{session_id}"]
    assert about(strange)["http.request.method"] == "_OTHER"
    assert read.resource.attributes["service.name"] == "earshot"
    assert read.resource.attributes["service.instance.id"] == "node-1"
    assert read.resource.schema_url == "https://opentelemetry.io/schemas/1.44.0"
    for secret in (PROJECT_KEY, session, "count=1"):
        assert secret not in told(spans)


def test_failure_of_the_server_is_an_error_without_its_message(found: Found, monkeypatch: pytest.MonkeyPatch) -> None:
    house = House()

    def fail(*given: object) -> None:
        raise RuntimeError("said in secret")

    monkeypatch.setattr(house.sessions, "view", fail)
    with client_of(house) as http:
        assert http.get(f"/audio_sessions/{ONE}/status").status_code == 500
    (read,) = found()["GET /audio_sessions/{session_id}/status"]
    assert (about(read)["error.type"], read.status.status_code, read.events) == ("500", StatusCode.ERROR, ())
    assert "secret" not in told(found())


def test_lines_have_the_trace_of_the_request(found: Found, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if the client's trace is not sampled."""
    house, seen = House(), []
    monkeypatch.setattr(house.sessions, "view", lambda session: seen.append(get_contextvars()))
    with client_of(house) as http:
        for flags in "01", "00":
            http.get(f"/audio_sessions/{ONE}/status", headers={"traceparent": f"00-{TRACE}-{PARENT}-{flags}"})
    assert [one.get("trace_id") for one in seen] == [TRACE] * len(seen) != []
    assert len(found()["GET /audio_sessions/{session_id}/status"]) == 1


def forwarded(headers: dict[str, str]) -> str:
    """Upload a chunk to an edge that forwards it to another; return the session."""
    with serving(House()) as owner:
        made = httpx2.post(f"{owner.url}/audio_sessions/", json=OPEN, headers={"X-Api-Key": PROJECT_KEY}, timeout=60)
        session = str(made.json()["session_id"])
        house = House()
        house.sessions.elsewhere[session] = owner.url
        with client_of(house, x_api_key=PROJECT_KEY) as http:
            put(http, session, headers)
    return session


def put(http: TestClient, session: str, headers: dict[str, str]) -> None:
    body = {"data": "AAAA" * 100}
    assert http.put(f"/audio_sessions/{session}/chunks/0", json=body, headers=headers).status_code == 200


def test_forwarded_request_is_one_trace_with_a_link_to_its_windows(found: Found) -> None:
    session = forwarded({})
    spans = found()
    first, second = spans[PUT]
    (between,) = spans["PUT"]
    chunk = ids_of("chunk", session, 0)
    assert ids(first)[0] == ids(second)[0] == chunk[0]
    assert (parent(first), parent(between), parent(second)) == (None, ids(first), ids(between))
    assert linked(first) == linked(second) == [chunk]
    assert between.kind is SpanKind.CLIENT
    port = about(between).pop("server.port")
    assert about(between) == {
        "http.request.method": "PUT",
        "server.address": "127.0.0.1",
        "server.port": port,
        "http.response.status_code": 200,
    }
    assert session not in told(spans)


def test_owner_that_does_not_answer_is_the_error_of_the_call(found: Found) -> None:
    house = House()
    house.sessions.elsewhere[ONE] = "http://127.0.0.1:9"
    with client_of(house, x_api_key=PROJECT_KEY) as http:
        assert http.get(f"/audio_sessions/{ONE}/status").status_code == 503
    (between, *_) = found()["GET"]
    assert (about(between)["error.type"], between.status.status_code) == ("NoConnection", StatusCode.ERROR)


def test_trace_of_the_client_is_passed_on_and_linked(found: Found) -> None:
    session = forwarded({"traceparent": f"00-{TRACE}-{PARENT}-01"})
    first, second = found()[PUT]
    assert ids(first)[0] == ids(second)[0] == int(TRACE, 16)
    assert linked(first) == linked(second) == [ids_of("chunk", session, 0)]


def parents_elsewhere(*given: str) -> list[str]:
    """Return the traceparents that an owner gets, one for each that a client has sent or, if it is empty, has not."""
    parents: list[str] = []

    async def note(scope: Any, receive: Any, send: Any) -> None:
        parents.append(dict(scope["headers"]).get(b"traceparent", b"").decode())
        head = {"type": "http.response.start", "status": 404, "headers": [(b"content-type", b"application/json")]}
        await send(head)
        await send({"type": "http.response.body", "body": b'{"error": "Not Found", "status_code": 404}'})

    with behind_a_server(note) as url:
        house = House()
        house.sessions.elsewhere[ONE] = url
        with client_of(house, x_api_key=PROJECT_KEY) as http:
            for one in given:
                http.get(f"/audio_sessions/{ONE}/status", headers={"traceparent": one} if one else {})
    return parents


def test_request_that_is_not_sampled_is_not_sampled_elsewhere(unsampled: Found) -> None:
    own, theirs = parents_elsewhere("", f"00-{TRACE}-{PARENT}-00")
    assert re.fullmatch("00-[0-9a-f]{32}-[0-9a-f]{16}-00", own)
    assert re.fullmatch(f"00-{TRACE}-[0-9a-f]{{16}}-00", theirs)
    assert unsampled() == {}


def test_trace_is_passed_on_where_traces_are_off() -> None:
    sent = f"00-{TRACE}-{PARENT}-01"
    assert parents_elsewhere(sent, "") == [sent, ""]


# --- jobs -----------------------------------------------------------------------------------------------------------


def test_request_links_to_the_trace_of_its_job(found: Found) -> None:
    house = House()
    with client_of(house, x_api_key=PROJECT_KEY) as http:
        options = json.dumps({"sound_event_detection": True})
        files = {"audio": ("secret name.wav", wav(tone(1.0)), "audio/wav")}
        answer = http.post("/api/v1/analyze_file", data={"options": options}, files=files)
        assert answer.status_code == 200, answer.text
    job = answer.json()["job_id"]
    spans = found()
    (asked,) = spans["POST /api/v1/analyze_file"]
    assert linked(asked) == [ids_of("job", job)]
    assert about(asked)["earshot.job.id"] == job[:8]
    assert job not in told(spans)
    assert "secret" not in told(spans)


async def test_job_its_services_and_calls_of_engines_are_one_trace(found: Found, tmp_path: Path) -> None:
    engine = HttpEngine(reply({"text": "said in secret", "segments": [], "language": "en"}))

    async def call(client: TranscriptionClient, work: Any) -> None:
        await client.transcribe(b"RIFF", "run-0", model="m", language="ko")

    async def fail(work: Any) -> None:
        raise AudioError("said in secret")

    async with engine.running():
        client = TranscriptionClient(engine.address(key="sk-secret"))
        services = {
            Service.SPEECH: ScriptedService(partial(call, client)),
            Service.SOUND: ScriptedService(fail),
        }
        async with Desk(tmp_path, services) as desk:
            desk.accept(name(1), Options(sound_event_detection=True, speech_analysis=True), at=5000)
            await desk.ends(name(1))
        await client.close()
    spans = found()
    (job,), (speech,), (sounds,) = (
        spans["job"],
        spans["service speech_analysis"],
        spans["service sound_event_detection"],
    )
    (asked,) = spans["POST /v1/audio/transcriptions"]
    assert ids(job) == ids_of("job", name(1)) == parent(speech) == parent(sounds)
    assert (parent(job), parent(asked)) == (None, ids(speech))
    assert job.start_time == 5_000_000_000
    assert about(job) == {"earshot.job.id": name(1)[:8], "earshot.job.failures": 1}
    assert about(speech) == {"earshot.job.id": name(1)[:8], "earshot.service": "speech_analysis"}
    assert (about(sounds)["error.type"], sounds.status.status_code) == ("AudioError", StatusCode.ERROR)
    assert about(asked)["http.response.status_code"] == 200
    trace, span = ids(asked)
    # The engine may go on with the trace.
    given: Asked = engine.asked[0]
    assert given.headers["traceparent"] == f"00-{format_trace_id(trace)}-{format_span_id(span)}-01"
    assert "secret" not in told(spans)


async def test_call_outside_of_a_trace_begins_none(found: Found) -> None:
    engine = HttpEngine(reply(b"", 500))
    async with engine.running():
        client = TranscriptionClient(engine.address())
        with pytest.raises(ServiceFault):
            await client.transcribe(b"RIFF", "run-0", model="m", language="ko")
        await client.close()
    assert (found(), engine.asked[0].headers["traceparent"]) == ({}, None)


# --- windows --------------------------------------------------------------------------------------------------------


async def test_windows_are_spans_in_the_trace_of_their_chunk(found: Found, tmp_path: Path) -> None:
    async with playing(tmp_path) as studio:
        await studio.send(ONE, STREAM)
        await studio.upload(ONE, pieces(sound(1.0), 1.0))
        await studio.settle()
        await studio.upload(ONE, pieces(sound(1.0), 1.0), 1)
        await studio.send(ONE, Sealed("c"))
    spans = found()
    first, second = spans[PROCESS]
    assert [ids(first), ids(second)] == [ids_of("chunk", ONE, number) for number in range(2)]
    assert about(second) == {
        "messaging.system": "kafka",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "earshot.session.command.v1",
        "messaging.destination.partition.id": "0",
        "messaging.batch.message_count": 1,
        "earshot.session.id": ONE[:8],
        "earshot.chunk.sequence": 1,
        "earshot.windows": about(second)["earshot.windows"],
    }
    assert about(second)["earshot.windows"] > 0
    assert [parent(span) for span in (*spans["score"], *spans["write"])] == [ids(first), ids(second)] * 2


async def test_chunks_of_one_step_have_a_span_each(found: Found, tmp_path: Path) -> None:
    async with playing(tmp_path) as studio:
        await studio.send(ONE, STREAM)
        studio.analyser.ready.take, take = (lambda: None), studio.analyser.ready.take  # type: ignore[method-assign]
        await studio.upload(ONE, pieces(sound(1.0), 0.5))
        studio.analyser.ready.take = take  # type: ignore[method-assign]
        studio.analyser.ready.wake()
    spans = found()
    first, second = spans[PROCESS]
    assert [ids(first), ids(second)] == [ids_of("chunk", ONE, number) for number in range(2)]
    assert (linked(first), linked(second)) == ([], [ids(first)])
    assert {about(one)["messaging.batch.message_count"] for one in (first, second)} == {2}
    assert len(spans["score"]) == 1


async def test_steps_of_a_file_are_in_the_trace_of_its_first_chunk(found: Found, tmp_path: Path) -> None:
    async with playing(tmp_path) as studio:
        await studio.send(ONE, FILE)
        await studio.upload(ONE, pieces(sound(2.0), 1.0))
        await studio.send(ONE, Sealed("c"))
    spans = found()[PROCESS]
    assert {ids(span)[0] for span in spans} == {ids_of("chunk", ONE, 0)[0]}
    assert sum(about(span)["earshot.windows"] for span in spans) > 0


async def test_failed_step_tells_the_type_of_its_error(found: Found, tmp_path: Path) -> None:
    async with playing(tmp_path) as studio:
        studio.refusals.append(AudioError("said in secret"))
        await studio.send(ONE, STREAM)
        await studio.upload(ONE, pieces(sound(1.0), 1.0))
    (step,) = found()[PROCESS]
    assert (about(step)["error.type"], step.status.status_code) == ("AudioError", StatusCode.ERROR)
    assert "secret" not in told(found())


async def test_steps_that_are_not_sampled_have_no_spans(unsampled: Found, tmp_path: Path) -> None:
    async with playing(tmp_path) as studio:
        await studio.send(ONE, STREAM)
        await studio.upload(ONE, pieces(sound(1.0), 1.0))
        await studio.settle()
        assert studio.written
    assert unsampled() == {}


def test_nodes_sample_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundredth of the traces, the same ones everywhere."""
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "0.01")
    one, two = (Spans(node, "kafka", SimpleSpanProcessor(InMemorySpanExporter())) for node in ("a", "b"))
    chunks = [ids_of("chunk", ONE, number)[0] for number in range(20_000)]
    sampled = [one.samples(trace) for trace in chunks]
    assert sampled == [two.samples(trace) for trace in chunks]
    own = [two.sampler.should_sample(None, trace, "").decision is Decision.RECORD_AND_SAMPLE for trace in chunks]
    assert sampled == own
    assert 100 < sum(sampled) < 300
