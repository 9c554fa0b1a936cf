"""The whole edge under malformed requests, in process: lines of an HTTP request in, an ASGI conversation out."""

import json
from collections.abc import AsyncGenerator, Sequence
from typing import Any, Final
from unittest import mock
from urllib.parse import unquote_to_bytes

import httpx2
import msgspec

from app.projects.project_bodies import DOG
from app.shown_alarms import ALARM, DESTINATION, RULE
from tests.contract.api import RAW, tone, wav
from tests.process import ADMIN_KEY
from tests.unit.app.conftest import KEY, OPTIONS, ORG_KEY, House
from tests.unit.app.documents.test_answers import OPERATIONS, request
from tests.unit.app.jobs.conftest import BOTH, TURNS, sounds, transcript
from tests.unit.asgi import Exchange
from topics import apikeys
from topics.alarms.rules import AlarmRule, StoredRule
from topics.errors import NotFound
from topics.jobs.options import Service
from topics.ports.administration import LocalAdministration, Organization, Project, UsageFilter
from topics.ports.alarms import Destination
from topics.ports.ledger import Charge, MeteredService
from topics.ports.projects import DailyUsage, ProjectAccount, ProjectKey

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


def accounts() -> Any:
    """Return an administration with one organization and one project."""

    def known(reference: str, *rest: object) -> str:
        if reference not in (ORGANIZATION.name, PROJECT.name):
            raise NotFound("there is none")
        return reference

    async def lines(period: UsageFilter) -> AsyncGenerator[Sequence[Charge], None]:
        yield []

    made = mock.Mock(spec=LocalAdministration, lines=lines)
    named = ("find_organization", "find_project", "rotate_organization_key", "rotate_project_key")
    for name in (*named, "delete_organization", "delete_project", "plan"):
        getattr(made, name).side_effect = known
    made.create_organization.return_value = ORGANIZATION, "eso_key"
    made.create_project.side_effect = lambda name, organization=None: (PROJECT, known(organization or "Farm"))
    made.organizations.return_value, made.projects.return_value = [ORGANIZATION], [PROJECT]
    made.totals.return_value = []
    return made


class Edge:
    """Answers inputs; each is one request in the format of `seeds`."""

    def __init__(self) -> None:
        self._answered = 0
        self._ids = {b"jobs": ID, b"audio_sessions": ID}

    def _begin(self) -> None:
        options = msgspec.structs.replace(OPTIONS, poll_seconds=0.0, admin_key=apikeys.digest(ADMIN_KEY))
        self._house = House(options, administration=accounts())
        self._house.projects.account.return_value = ACCOUNT
        self._house.projects.renew_key.return_value = KEY
        self._house.projects.daily_usage.return_value = [DailyUsage("2026-11-22", MeteredService.SOUND, 1, 1000)]
        self._house.sign_ins.redeem.side_effect = NotFound("there is no such link")
        self._house.nodes.owner.return_value = None
        self._house.nodes.url = "http://node-1:8000"
        for name in ("dead_letter", "put_back"):
            getattr(self._house.nodes, name).side_effect = NotFound("there is no such record")
        rule = AlarmRule("smoke", tags=(DOG.name,), destinations=(DESTINATION,))
        self._house.alarms.known_rules[RULE] = StoredRule(RULE, "project", 1, rule)
        self._house.alarms.known[DESTINATION] = Destination(
            DESTINATION, "project", "hook", "webhook", "https://example.org", True, None, ("whsec_one",)
        )
        self._house.alarms.add(msgspec.structs.replace(ALARM, project="project"))
        for name in ("mark", "unmark", "learn", "learnt", "switch", "remove"):
            getattr(self._house.own_sounds, name).side_effect = NotFound("no such sound")
        self._house.own_sounds.sounds.return_value = []

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
        parts = (one.partition(b":") for one in lines)
        headers = [(name.strip().lower(), value.strip()) for name, _, value in parts if name]
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
        sent: list[Any] = []

        async def receive() -> dict[str, Any]:
            if not pieces:
                return {"type": "http.disconnect"}
            return {"type": "http.request", "body": pieces.pop(0), "more_body": bool(pieces)}

        async def send(message: Any) -> None:
            sent.append(message)

        await self._house.app(scope, receive, send)
        if sent:
            self._check(scope["path"], sent)

    async def _open(self) -> None:
        """Create a session with a chunk, and a finished job."""
        made = await self._new_session()
        if made.status == 401:  # An input has ended the key.
            self._begin()
            made = await self._new_session()
        job = self._house.jobs.create(BOTH, keep_audio_ms=1000)
        self._house.jobs.perform(job, Service.SOUND, sounds("Siren"))
        self._house.jobs.perform(job, Service.SPEECH, transcript(*TURNS))
        session = made.json["session_id"]
        self._ids = {b"jobs": job.encode(), b"audio_sessions": session.encode()}

    async def _new_session(self) -> Exchange:
        content = json.dumps({"type": "stream", "content_type": RAW}).encode()
        return await Exchange(self._house, "/audio_sessions/", "POST", content, x_api_key=KEY).end()

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
    """Return a request of every documented operation, and short ones with forms."""
    places = {"session_id": ID.decode(), "job_id": ID.decode()}
    found = []
    for name, (_, _, operation) in OPERATIONS.items():
        if list(operation.get("requestBody", {"content": ()})["content"]) == ["multipart/form-data"]:
            continue
        asked = request(name, places=places, media="application/json" if "requestBody" in operation else "")
        queries = [one for one in operation["parameters"] if one["in"] == "query" and "token" not in one["name"]]
        numbers = [one for one in queries if one["schema"].get("type") in ("integer", "number")]
        asked["params"] = {one["name"]: 2 for one in numbers} | {
            one["name"]: one["example"] for one in queries if "example" in one
        }
        made = httpx2.Request(**asked | {"method": asked["method"].upper(), "url": f"http://here{asked['url']}"})
        headers = "".join(f"\n{key}: {value}" for key, value in made.headers.items() if key != "host")
        head = f"{made.method} {made.url.raw_path.decode()}{headers}\nIdempotency-Key: a\n\n"
        found.append(head.encode() + made.read())
    texts = {
        "options": '{"speech_analysis":true,"speech_model":"whisper-large-turbo"}', "speaker": "Kim",
        "model": "whisper-1", "response_format": "verbose_json", "timestamp_granularities[]": "word",
        "known_speaker_names[]": "Kim", "stream": "true", "temperature": "0.5", "language": "en",
    }  # fmt: skip
    for path, field, fields in (
        ("/api/v1/analyze_file", "audio", ("options",)),
        ("/api/v2/voice", "file", ("speaker",)),
        ("/api/v2/recognition", "file", ()),
        ("/v1/audio/transcriptions", "file", tuple(texts)[2:]),
        ("/v1/audio/translations", "file", tuple(texts)[2:]),
    ):
        key = f"Authorization: Bearer {KEY}" if path.startswith("/v1") else f"X-Api-Key: {KEY}\nX-Org-Key: {ORG_KEY}"
        parts = [f'name="{name}"\r\n\r\n{texts[name]}'.encode() for name in fields]
        parts.append(f'name="{field}"; filename="a.wav"\r\n\r\n'.encode() + wav(tone(0.05)))
        body = b"".join(b"--b\r\nContent-Disposition: form-data; " + part + b"\r\n" for part in parts)
        head = f"POST {path}\n{key}\nContent-Type: multipart/form-data; boundary=b\n\n"
        found.append(head.encode() + body + b"--b--\r\n")
    return found
