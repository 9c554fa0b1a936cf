"""The whole edge under malformed requests, in process: lines of an HTTP request in, an ASGI conversation out."""

import json
from collections.abc import AsyncGenerator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final
from unittest import mock
from urllib.parse import unquote_to_bytes

import msgspec

from app.jobs import requests
from app.routes import (
    ADMIN_ROUTES,
    DASHBOARD_ROUTES,
    JOB_ROUTES,
    JOBS_PREFIX,
    LIVE_ROUTES,
    OPENAI_PREFIX,
    OPENAI_ROUTES,
    PROJECT_ROUTES,
    SERVICE_ROUTES,
    SESSION_ROUTES,
    SOCKET_ROUTES,
    SPEAKER_ROUTES,
    SPEAKERS_PREFIX,
)
from tests.contract.api import RAW, b64, tone, wav
from tests.unit.app.conftest import KEY, OPTIONS, ORG_KEY, House
from tests.unit.app.jobs.conftest import BOTH, TURNS, sounds, transcript
from tests.unit.asgi import Exchange
from topics import apikeys
from topics.errors import BadRequest, NotFound
from topics.jobs.options import Service
from topics.ports.administration import Organization, Project, UsageFilter, UsageTotal
from topics.ports.ledger import Charge, MeteredService
from topics.ports.projects import DailyUsage, ProjectAccount, ProjectKey

ADMIN_KEY: Final = "the operator's own key"
#: Requests after which everything is recreated, to limit memory.
LIFETIME: Final = 3000
#: Requests between fresh sessions and jobs.
FRESH: Final = 25
#: Placeholder for that session or job in paths.
ID: Final = b"3TqZ0aLxPmV7cW9yB2nRkD4s"
#: Statuses of the contracts, and 405 of HTTP.
STATUSES: Final = frozenset({200, 201, 204, 304, 308, 400, 401, 402, 403, 404, 405, 408, 409, 413, 415, 422, 501, 503})
ORGANIZATION: Final = Organization("o", "Farm", 0, "eso_...abcd")
PROJECT: Final = Project("p", "Barn", "o", 0, "esp_...abcd", 7)
ACCOUNT: Final = ProjectAccount("p", "Barn", "Farm", 0, ProjectKey("esp_...abcd", 0, None), 7, 0)


class Accounts:
    """An `Administration` with one organization and one project."""

    async def create_organization(self, name: str) -> tuple[Organization, str]:
        if not 1 <= len(name) <= 40 or not name.isprintable():
            raise BadRequest("name: must be 1 to 40 printable characters")
        return ORGANIZATION, "eso_key"

    async def organizations(self) -> Sequence[Organization]:
        return [ORGANIZATION]

    async def rotate_organization_key(self, organization: str) -> str:
        return self._key(organization, "Farm")

    async def find_organization(self, organization: str) -> str:
        self._key(organization, "Farm")
        return organization

    async def find_project(self, project: str) -> str:
        self._key(project, "Barn")
        return project

    async def delete_organization(self, organization: str) -> None:
        self._key(organization, "Farm")

    async def create_project(self, name: str, organization: str | None = None) -> tuple[Project, str]:
        return PROJECT, self._key(organization or "Farm", "Farm")

    async def projects(self, organization: str | None = None) -> Sequence[Project]:
        return [PROJECT]

    async def rotate_project_key(self, project: str) -> str:
        return self._key(project, "Barn")

    async def plan(self, project: str, free_seconds: int | None) -> None:
        self._key(project, "Barn")

    async def delete_project(self, project: str) -> None:
        self._key(project, "Barn")

    async def totals(self, period: UsageFilter) -> Sequence[UsageTotal]:
        return []

    async def lines(self, period: UsageFilter) -> AsyncGenerator[Sequence[Charge], None]:
        yield []

    def _key(self, reference: str, name: str) -> str:
        if reference != name:
            raise NotFound("there is none")
        return "key"


class Edge:
    """Answers inputs; each is one request in the format of `seeds`."""

    def __init__(self) -> None:
        self._answered = 0
        self._ids = {b"jobs": ID, b"audio_sessions": ID}
        # The executor's thread does not exist in a forked process.
        mock.patch.object(requests, "_DECODING", ThreadPoolExecutor(1)).start()

    def _begin(self) -> None:
        options = msgspec.structs.replace(OPTIONS, poll_seconds=0.0, admin_key=apikeys.digest(ADMIN_KEY))
        self._house = House(options, Accounts())
        self._house.projects.account.return_value = ACCOUNT
        self._house.projects.renew_key.return_value = KEY
        self._house.projects.daily_usage.return_value = [DailyUsage("2026-11-22", MeteredService.SOUND, 1, 1000)]
        self._house.sign_ins.redeem.side_effect = NotFound("there is no such link")

    async def answer(self, data: bytes) -> None:
        """Send one request and check the answer.

        Raises:
            AssertionError: The status is in no contract, or the answer is truncated.
            Exception: Any that the edge did not handle.
        """
        if self._answered % LIFETIME == 0:
            self._begin()
        if self._answered % FRESH == 0:
            await self._open()
        self._answered += 1
        head, _, body = data.partition(b"\n\n")
        line, *lines = head.split(b"\n")
        for room, id in self._ids.items():
            line = line.replace(b"/%b/%b" % (room, ID), b"/%b/%b" % (room, id))
        method, _, target = line.partition(b" ")
        path, _, query = target.partition(b"?")
        headers = [
            (name.strip().lower(), value.strip()) for name, _, value in (one.partition(b":") for one in lines) if name
        ]
        scope = {
            "type": "http",
            "method": method.decode("latin-1").upper() or "GET",
            "path": unquote_to_bytes(path).decode("utf-8", "replace") or "/",
            "raw_path": path,
            "query_string": query,
            "http_version": "1.1",
            "headers": headers,
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 8000),
            "scheme": "http",
        }
        pieces = [body[start : start + 5000] for start in range(0, len(body), 5000)] or [b""]
        coming: Iterator[dict[str, Any]] = iter(
            [
                {"type": "http.request", "body": piece, "more_body": number < len(pieces)}
                for number, piece in enumerate(pieces, 1)
            ]
        )
        sent: list[Any] = []

        async def receive() -> dict[str, Any]:
            return next(coming, {"type": "http.disconnect"})

        async def send(message: Any) -> None:
            sent.append(message)

        await self._house.app(scope, receive, send)
        if sent:
            self._check(scope["path"], sent)

    async def _open(self) -> None:
        """Create a session with a chunk, and a finished job."""
        content = json.dumps({"type": "stream", "content_type": RAW}).encode()
        made = await Exchange(self._house, "/audio_sessions/", "POST", content, x_api_key=KEY).end()
        job = self._house.jobs.create(BOTH, keep_audio_ms=1000)
        self._house.jobs.perform(job, Service.SOUND, sounds("Siren"))
        self._house.jobs.perform(job, Service.SPEECH, transcript(*TURNS))
        session = made.json["session_id"]
        self._ids = {b"jobs": job.encode(), b"audio_sessions": session.encode()}

    def _check(self, path: object, sent: list[Any]) -> None:
        status, headers = sent[0]["status"], dict(sent[0]["headers"])
        if status == 501 and str(path).startswith("/api/v1/custom_sound"):
            return
        # The contract of jobs has 500 for audio that is no recording; a header has the reason.
        assert status in STATUSES or (status == 500 and b"earshot-reason" in headers), f"{status} at {path!r}"
        body = b"".join(message.get("body", b"") for message in sent[1:])
        if headers.get(b"content-type") == b"application/json" and not sent[-1].get("more_body") and body:
            json.loads(body)


def seeds() -> list[bytes]:
    """Return a request for every path and method, and some with bodies."""
    tables = [
        ("", SESSION_ROUTES), ("/sense/api/v1", SESSION_ROUTES), (JOBS_PREFIX, JOB_ROUTES),
        (SPEAKERS_PREFIX, SPEAKER_ROUTES), (OPENAI_PREFIX, OPENAI_ROUTES), ("", SERVICE_ROUTES), ("", SOCKET_ROUTES),
        (JOBS_PREFIX, PROJECT_ROUTES), (JOBS_PREFIX, LIVE_ROUTES), ("", DASHBOARD_ROUTES), ("/admin/v1", ADMIN_ROUTES),
    ]  # fmt: skip
    keys = f"X-Api-Key: {KEY}\nX-Org-Key: {ORG_KEY}\nAuthorization: Bearer {ADMIN_KEY}"
    found = []
    for prefix, table in tables:
        for path, handlers in table.items():
            for method in handlers:
                place = path.replace("{session_id}", ID.decode()).replace("{chunk_sequence}", "0")
                place = place.replace("{job_id}", ID.decode()).replace("{reference:path}", "Barn/key")
                place = place.replace("{file:path}", "main.js")
                found.append(f"{method} {prefix}{place}?offset=0&count=2\n{keys}\n\n{{}}".encode())
    create = json.dumps({"type": "stream", "content_type": RAW, "default_sensitivity": 1})
    analyze = json.dumps(
        {
            "samplerate": 16000,
            "audio": b64(wav(tone(0.05))),
            "options": {"sound_event_detection": True},
            "filename": "a",
        }
    )
    for path, body in (
        ("/audio_sessions/", create),
        ("/api/v1/analyze", analyze),
        ("/admin/v1/projects", '{"name":"Barn","organization":"Farm"}'),
        ("/admin/v1/organizations", '{"name":"Farm"}'),
        (f"/audio_sessions/{ID.decode()}/predict", json.dumps({"data": b64(tone(1)), "sequence": 0})),
    ):
        found.append(f"POST {path}\n{keys}\nIdempotency-Key: a\nContent-Length: {len(body)}\n\n{body}".encode())
    chunk = json.dumps({"data": b64(tone(1))})
    found.append(f"PUT /audio_sessions/{ID.decode()}/chunks/0\nIdempotency-Key: a\n\n{chunk}".encode())
    found.append(f'PATCH /audio_sessions/{ID.decode()}\n\n{{"make_readonly":true}}'.encode())
    for path, field in ("/api/v1/analyze_file", "audio"), ("/api/v2/voice", "file"), ("/api/v2/recognition", "file"):
        parts = (("options", '{"speech_analysis":true,"speech_model":"whisper-large-turbo"}'), ("speaker", "Kim"))
        body = "".join(
            f'--b\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{text}\r\n' for name, text in parts
        )
        file = f'--b\r\nContent-Disposition: form-data; name="{field}"; filename="a.wav"\r\n\r\n'.encode()
        head = f"POST {path}\n{keys}\nContent-Type: multipart/form-data; boundary=b\n\n"
        found.append(head.encode() + body.encode() + file + wav(tone(0.05)) + b"\r\n--b--\r\n")
    pointed = json.dumps({"speaker": "Kim", "job_id": ID.decode(), "job_speaker": "SPEAKER_01"})
    found.append(f"POST /api/v2/voice\n{keys}\nContent-Type: application/json\n\n{pointed}".encode())
    fields = (
        ("model", "whisper-1"), ("response_format", "verbose_json"), ("timestamp_granularities[]", "word"),
        ("known_speaker_names[]", "Kim"), ("stream", "true"), ("temperature", "0.5"), ("language", "en"),
    )  # fmt: skip
    texts = "".join(f'--b\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{text}\r\n' for name, text in fields)
    file = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\n' + wav(tone(0.05))
    for path in "/v1/audio/transcriptions", "/v1/audio/translations":
        head = f"POST {path}\nAuthorization: Bearer {KEY}\nContent-Type: multipart/form-data; boundary=b\n\n"
        found.append(head.encode() + texts.encode() + file + b"\r\n--b--\r\n")
    return found
