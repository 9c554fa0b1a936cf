"""A small in-memory server of the job interface that breaks streams, loses answers and is busy on request."""

import json
from collections import deque
from collections.abc import AsyncIterator
from email import message_from_bytes
from typing import Any, cast

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.unit.app.client.stub import Cut, Fault
from tests.unit.app.conftest import KEY

RESULT: dict[str, Any] = {
    "sound_event_detection": {
        "status": "success",
        "results": [
            {"id": "1", "start_time_sec": n, "end_time_sec": n + 2.0, "classes": classes}
            for n, classes in enumerate([[{"class": "Dog_bark", "confidence": 0.8, "id": "a"}]] * 2 + [[]])
        ],
    },
    "speech_analysis": {
        "status": "success",
        "results": [
            {
                "transcript": "Sit! \u2028 data: [good] dog",
                "start_time_sec": 0.5,
                "end_time_sec": 3661.25,
                "speaker": "SPEAKER_00",
                "speaker_name": "Unknown 0",
                "speaker_score": -1.0,
                "item_ids": {},
            }
        ],
    },
    "metadata": {"warnings": ["the engine has one language"]},
}
FAULTY: dict[str, Any] = {
    **RESULT,
    "speech_analysis": {"status": "error", "error": "ASR Engine API error: 500"},
    "caption": {"status": "success", "result": {"caption": "A dog barks."}},
    "audio_insights": {
        "status": "success",
        "result": {
            "contains_speech": False,
            "primary_sound_environment": "a yard",
            "situation_summary": "A dog barks twice.",
            "notable_events": ["Dog_bark"],
        },
        "item_ids": {},
    },
}


def event(kind: str, data: object, number: int) -> bytes:
    return f"event: {kind}\nid: {number}\ndata: {json.dumps(data, ensure_ascii=False)}\n\n".encode()


def story(result: dict[str, Any]) -> list[bytes]:
    """Return the events of a successful job."""
    halfway = {"job_id": "j", "status": "processing", "progress": 0.5, "services": {"caption": {"status": "running"}}}
    return [
        event("progress", halfway, 1),
        event("partial_result", {"service": "sound_event_detection", "status": "success", "results": 3}, 2),
        event("completed", result, 3),
    ]


class Sent(msgspec.Struct):
    options: dict[str, Any]
    name: str
    content_type: str
    data: bytes
    headers: dict[str, str]


class JobStub:
    """`connections` lists what each stream connection sends before it breaks; later ones send everything."""

    def __init__(self) -> None:
        self.url = ""
        self.reset()

    def reset(self) -> None:
        self.result = RESULT
        self.faults: deque[Fault] = deque()
        self.refusals: deque[Response] = deque()
        self.connections: deque[bytes] = deque()
        self.after: list[str | None] = []
        self.jobs: dict[str, Sent] = {}
        self.uploads = 0
        #: Followers of a job see it removed.
        self.removing = False

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/api/v1/analyze_file", self.analyze, methods=["POST"]),
                Route("/api/v1/jobs", self.list),
                Route("/api/v1/jobs/{id}", self.job, methods=["GET", "DELETE"]),
                Route("/api/v1/jobs/{id}/stream", self.stream),
                Route("/api/v1/jobs/{id}/captions.{form}", self.captions),
            ]
        )

    async def analyze(self, request: Request) -> Response:
        self.uploads += 1
        body = await request.body()
        if request.headers["x-api-key"] != KEY:
            return error(401, "Invalid API key")
        if self.refusals:
            return self.refusals.popleft()
        fault = self.faults.popleft() if self.faults else None
        if fault == "busy":
            return JSONResponse({"error": "queues are full"}, 503, {"Retry-After": "0.01"})
        job = f"j{request.headers['idempotency-key'][:8]}"
        self.jobs[job] = _upload(request, body)
        return Cut() if fault == "lost" else JSONResponse({"job_id": job, "status": "accepted", "created_at": "now"})

    async def list(self, request: Request) -> Response:
        done = {"status": "completed", "created_at": "now", "services": {"caption": "error"}, "format": "wav"}
        size = {"size_bytes": 1, "seconds": 3.5}
        entries = [{"job_id": name, "filename": sent.name, **done, **size} for name, sent in self.jobs.items()]
        return JSONResponse({"jobs": entries})

    async def job(self, request: Request) -> Response:
        name = request.path_params["id"]
        if request.headers["x-api-key"] != KEY:
            return error(401, "Invalid API key")
        if name not in self.jobs:
            return error(404, "Not Found")
        if request.method == "DELETE":
            del self.jobs[name]
            return Response(status_code=204)
        return JSONResponse({"job_id": name, "status": "completed", "created_at": "now", "result": self.result})

    async def stream(self, request: Request) -> Response:
        if self.refusals:
            return self.refusals.popleft()
        if request.path_params["id"] not in self.jobs:
            return error(404, "Not Found")
        self.after.append(request.headers.get("last-event-id"))
        if self.removing:
            del self.jobs[request.path_params["id"]]
            self.connections.append(event("error", {"error": "the job was removed"}, 0))
        after = int(request.headers.get("last-event-id", 0))
        sent = self.connections.popleft() if self.connections else b"".join(story(self.result)[after:])
        return StreamingResponse(_pieces(sent), media_type="text/event-stream")

    async def captions(self, request: Request) -> Response:
        if self.refusals:
            return self.refusals.popleft()
        return PlainTextResponse(f"captions as {request.path_params['form']} – héllo")


async def _pieces(sent: bytes) -> AsyncIterator[bytes]:
    for at in range(0, len(sent), 7):
        yield sent[at : at + 7]


def _upload(request: Request, body: bytes) -> Sent:
    message = message_from_bytes(b"Content-Type: " + request.headers["content-type"].encode() + b"\r\n\r\n" + body)
    _, options, audio = message.walk()
    options_text, data = (cast(bytes, part.get_payload(decode=True)) for part in (options, audio))
    name = body.split(b'filename="')[1].split(b'"')[0].decode()
    return Sent(json.loads(options_text), name, audio.get_content_type(), data, dict(request.headers))


def error(status: int, message: str, **more: object) -> Response:
    return JSONResponse({"error": message, **more}, status)
