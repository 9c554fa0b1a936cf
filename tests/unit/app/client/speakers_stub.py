"""A small in-memory server of the speaker interface that loses answers and is busy on request."""

import json
import re
from collections import deque
from email import message_from_bytes
from typing import Any, cast

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.unit.app.client.stub import Cut, Fault

ORG_KEY = "an-organization-key-of-the-stub"
TURNS: list[dict[str, Any]] = [
    {
        "idx": idx,
        "transcript": words,
        "confidence": 0,
        "first_word_start_msec": 30_000 * idx + 30,
        "first_word_start_time": "00:00.03",
        "last_word_end_msec": 30_000 * idx + 29_980,
        "last_word_end_time": "00:29.98",
        "speaker_tag": idx,
        "speaker_name": name,
        "speaker_score": score,
        "speaker_is_unlabeled": name == "Unknown 1",
        "org_pub_id": "o1" if name == "Anna_Kim" else "",
    }
    for idx, (name, score, words) in enumerate(
        [("Anna_Kim", 0.731, "Good [morning]\x1b[2J."), ("Unknown 0", 0.058, "Hello."), ("Unknown 1", -1.0, "")]
    )
]


class SpeakerStub:
    """`refusals` answer the next requests, whatever they are."""

    def __init__(self) -> None:
        self.url = ""
        self.reset()

    def reset(self) -> None:
        self.voices: dict[str, list[bytes]] = {}
        self.faults: deque[Fault] = deque()
        self.refusals: deque[Response] = deque()
        self.requests: list[str] = []
        self.turns = TURNS
        #: Speakers of another model, and how many of their samples cannot be learnt again.
        self.left: dict[str, int] = {}

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/api/v2/speakers", self.answer),
                Route("/api/v2/voice", self.answer, methods=["POST"]),
                Route("/api/v2/speaker", self.answer, methods=["DELETE"]),
                Route("/api/v2/recognition", self.answer, methods=["POST"]),
                Route("/api/v2/speaker/re-enroll", self.answer, methods=["POST"]),
            ]
        )

    async def answer(self, request: Request) -> Response:
        self.requests.append(f"{request.method} {request.url.path.removeprefix('/api/v2/')}")
        body = await request.body()
        if request.headers.get("x-org-key") != ORG_KEY:
            return refusal(401, "organization not found")
        if self.refusals:
            return self.refusals.popleft()
        fault = self.faults.popleft() if self.faults else None
        if fault == "busy":
            return refusal(503, "too much waits already", **{"Retry-After": "0.01"})
        parts = _parts(request, body)
        said = self.said(request, parts)
        if isinstance(said, str):
            return refusal(200, said)
        return Cut() if fault == "lost" else JSONResponse({"data": said, "error": "", "debug": ""})

    def said(self, request: Request, parts: dict[str, bytes]) -> Any:
        """Return the data of an answer, or the violated rule."""
        name = request.query_params.get("speaker", "")
        match request.url.path.removeprefix("/api/v2/"):
            case "speakers":
                return [self.profile(one) for one in sorted(self.voices)]
            case "voice":
                name = parts["speaker"].decode()
                if not re.fullmatch(r"[A-Za-z0-9_]+", name):
                    return "speaker is invalid. only alphabet, number and underscore are allowed"
                if "job_id" in parts:
                    if parts["job_id"] != b"a-job":
                        return "job not found"
                    parts["file"] = parts["job_speaker"]
                if not parts["file"]:
                    return "an empty file"
                self.voices.setdefault(name, []).append(parts["file"])
                return self.profile(name)
            case "recognition":
                if len(parts["file"]) > 1 << 20:
                    return "audio length is longer than 10 minutes"
                return {"transcription": self.turns}
            case "speaker":
                return {"speaker": name} if self.voices.pop(name, None) else "speaker not found"
        if name not in self.voices:
            return "speaker not found"
        return {"speaker": name, "done": len(self.voices[name]), "left": self.left.pop(name, 0)}

    def profile(self, name: str) -> dict[str, Any]:
        return {
            "speaker": name,
            "created_at": "2026-11-21T08:00:00.000Z",
            "total_length": 10.5 * len(self.voices[name]),
            "samples": len(self.voices[name]),
            "is_compatible": name not in self.left,
        }


def _parts(request: Request, body: bytes) -> dict[str, bytes]:
    kind = request.headers.get("content-type", "")
    if kind == "application/json":
        return {name: str(value).encode() for name, value in json.loads(body).items()}
    if not kind.startswith("multipart/form-data"):
        return {}
    message = message_from_bytes(b"Content-Type: " + kind.encode() + b"\r\n\r\n" + body)
    return {
        str(part.get_param("name", header="content-disposition")): cast(bytes, part.get_payload(decode=True))
        for part in message.walk()
        if not part.is_multipart()
    }


def refusal(status: int, message: str, **headers: str) -> Response:
    return JSONResponse({"data": None, "error": message, "debug": ""}, status, headers)
