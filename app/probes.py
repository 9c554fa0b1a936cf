"""Operations about the service itself: its name, liveness, readiness and metrics."""

from collections.abc import Sequence
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from app.http.call import Call
from app.http.metrics import Meters
from app.http.replies import Reply, json_reply, reply_of_bytes
from topics.errors import Unavailable
from topics.ports import health

EXPOSITION = (b"content-type", b"text/plain; version=1.0.0; charset=utf-8")


class About(msgspec.Struct, frozen=True):
    """The name and version of the service."""

    service: str
    does: str
    start: str
    documentation: str


class Health(msgspec.Struct, frozen=True):
    """A probe that found no fault."""

    status: Literal["ok"]


class Readiness(msgspec.Struct, frozen=True, omit_defaults=True):
    """Requests can be served."""

    status: Literal["ok"]
    notes: Annotated[
        Sequence[health.Note],
        Meta(description="What an operator should still look at, the worst first; absent if nothing."),
    ] = ()


ABOUT: Final = About(
    service="Earshot",
    does="sound analysis: audio in, live or whole, sound events and speech out",
    start="POST /audio_sessions/ or /api/v1/analyze_file with the header X-Api-Key",
    documentation="/docs for people, /openapi.json for programs; probes at /healthz, /readyz and /metrics",
)
VARY: Final = (b"vary", b"accept")
NOT_READY: Final = "not ready"
WELL: Final = Health("ok")
READY: Final = Readiness("ok")
NOTED: Final = Readiness("ok", ["a table was rebuilt", "damaged tables were set aside"])


class ProbeContext(msgspec.Struct, frozen=True):
    health: health.Health
    meters: Meters
    about: About = ABOUT
    #: Reasons and notes are only for the operator.
    silent: bool = False
    #: What a browser gets in place of this: the path of a page, "" if there is none.
    page: str = ""


async def about(call: Call, context: ProbeContext) -> Reply:
    """GET /: names the service; leads a browser to the dashboard, or to the documents without one."""
    if not context.page or b"text/html" not in call.header(b"accept"):
        reply = json_reply(context.about)
        reply.headers.append(VARY)
        return reply
    address = f"{call.scope.get('root_path', '')}/{context.page}".encode("latin-1")
    return Reply(302, [(b"location", address), (b"content-length", b"0"), VARY])


async def healthz(call: Call, context: ProbeContext) -> Reply:
    """GET /healthz: 503 with the reason once the process is about to stop."""
    if (reason := context.health.alive()) is not None:
        raise Unavailable(reason)
    return json_reply(WELL)


async def readyz(call: Call, context: ProbeContext) -> Reply:
    """GET /readyz: 503 with the reason until requests can be served; then notes about problems."""
    if (reason := context.health.ready()) is not None:
        raise Unavailable(NOT_READY if context.silent else reason)
    return json_reply(READY if context.silent else Readiness("ok", tuple(context.health.notes())))


async def metrics(call: Call, context: ProbeContext) -> Reply:
    """GET /metrics: the Prometheus text format."""
    return reply_of_bytes(200, EXPOSITION, context.meters.exposition())


def about_deployment(docs: bool, metrics_here: bool) -> About:
    documents = "/docs for people, /openapi.json for programs; " if docs else ""
    probes = "/healthz, /readyz and /metrics" if metrics_here else "/healthz and /readyz"
    return msgspec.structs.replace(ABOUT, documentation=f"{documents}probes at {probes}")
