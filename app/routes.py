"""The whole service as one table of routes."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Mapping
from typing import Final

from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from app.edge import Edge
from app.http.operation import Call, Generation, Handler, Operation
from app.http.replies import Reply, Shape, session_error
from app.jobs.accept import analyze, analyze_file
from app.jobs.captions import captions_srt, captions_vtt
from app.jobs.errors import job_error
from app.jobs.events import follow_job
from app.jobs.reads import delete_job, read_job
from app.probes import healthz, metrics, readyz
from app.sessions.catalogue import about, client_versions, latest_client, official_tags
from app.sessions.commands import create_session, delete_session, update_session, upload_chunk
from app.sessions.reads import predict, read_results, read_status
from app.speakers.errors import speaker_error
from app.speakers.operations import (
    list_speakers,
    re_enroll_speaker,
    recognize_speakers,
    register_voice,
    remove_speaker,
)
from topics.catalog import DEFAULT_CHUNK_LIMIT
from topics.geometry import SENSE, SESSIONS

SENSE_PREFIX: Final = "/sense/api/v1"
JOBS_PREFIX: Final = "/api/v1"
SPEAKERS_PREFIX: Final = "/api/v2"
CHUNK_PATH: Final = "/audio_sessions/{session_id}/chunks/{chunk_sequence}"
STATUS_PATH: Final = "/audio_sessions/{session_id}/status"

Table = Mapping[str, Mapping[str, Handler]]

SESSION_ROUTES: Final[Table] = {
    "/audio_sessions/": {"POST": create_session},
    "/audio_sessions": {"POST": create_session},
    "/audio_sessions/{session_id}": {"PATCH": update_session, "DELETE": delete_session},
    CHUNK_PATH: {"PUT": upload_chunk},
    STATUS_PATH: {"GET": read_status},
    "/audio_sessions/{session_id}/results": {"GET": read_results},
    "/audio_sessions/{session_id}/predict": {"POST": predict},
    "/tags/official": {"GET": official_tags},
    "/client-libraries/versions": {"GET": client_versions},
    "/client-libraries/latest": {"GET": latest_client},
}

JOB_ROUTES: Final[Table] = {
    "/analyze": {"POST": analyze},
    "/analyze_file": {"POST": analyze_file},
    "/jobs/{job_id}": {"GET": read_job, "DELETE": delete_job},
    "/jobs/{job_id}/stream": {"GET": follow_job},
    "/jobs/{job_id}/captions.vtt": {"GET": captions_vtt},
    "/jobs/{job_id}/captions.srt": {"GET": captions_srt},
}

SPEAKER_ROUTES: Final[Table] = {
    "/speakers": {"GET": list_speakers},
    "/voice": {"POST": register_voice},
    "/speaker": {"DELETE": remove_speaker},
    "/speaker/re-enroll": {"POST": re_enroll_speaker},
    "/recognition": {"POST": recognize_speakers},
}

SERVICE_ROUTES: Final[Table] = {
    "/": {"GET": about},
    "/healthz": {"GET": healthz},
    "/readyz": {"GET": readyz},
    "/metrics": {"GET": metrics},
}


class Resource:
    """The ASGI endpoint of a path: one operation for each method."""

    def __init__(self, handlers: Mapping[str, Handler], edge: Edge, generation: Generation) -> None:
        self._operations = {method: Operation(handler, edge, generation) for method, handler in handlers.items()}
        if "GET" in handlers:
            self._operations["HEAD"] = self._operations["GET"]
        self._other = Operation(_not_allowed(self._operations), edge, generation)

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Serve one request with the operation of its method."""
        return self._operations.get(scope["method"], self._other)(scope, receive, send)


def _not_allowed(methods: Iterable[str]) -> Handler:
    allow = ", ".join(sorted(methods)).encode("ascii")

    async def method_not_allowed(call: Call) -> Reply:
        reply = call.generation.error(405, None)
        reply.headers.append((b"allow", allow))
        return reply

    return method_not_allowed


def routes(edge: Edge) -> list[Route]:
    """Return every route: the sessions of both generations, the jobs, the speakers, then the service's own."""
    sessions = Generation("", SESSIONS, DEFAULT_CHUNK_LIMIT, session_error)
    sense = Generation(SENSE_PREFIX, SENSE, edge.options.chunk_limit, session_error)
    jobs = Generation(JOBS_PREFIX, SENSE, DEFAULT_CHUNK_LIMIT, job_error)
    speakers = Generation(SPEAKERS_PREFIX, SENSE, DEFAULT_CHUNK_LIMIT, speaker_error)
    tables = (
        (sessions, SESSION_ROUTES),
        (sense, SESSION_ROUTES),
        (jobs, JOB_ROUTES),
        (speakers, SPEAKER_ROUTES),
        (sessions, SERVICE_ROUTES),
    )
    return [route for generation, table in tables for route in _at(edge, generation, table)]


def error_shape(path: str) -> Shape:
    """Return the shape of errors at a path that has no route: that of its part of the interface."""
    if f"{path}/".startswith(f"{SPEAKERS_PREFIX}/"):
        return speaker_error
    return job_error if path.startswith("/api/") else session_error


def _at(edge: Edge, generation: Generation, table: Table) -> list[Route]:
    return [Route(generation.prefix + path, Resource(handlers, edge, generation)) for path, handlers in table.items()]
