"""Operations about the service itself: what it is, whether it is alive and ready, and what it counts."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from app.http.call import Call
from app.http.metrics import Meters
from app.http.replies import Reply, json_reply, reply_of_bytes
from topics.errors import Unavailable
from topics.ports import health

EXPOSITION = (b"content-type", b"text/plain; version=1.0.0; charset=utf-8")


class About(msgspec.Struct, frozen=True):
    """What answers here."""

    service: str
    does: str
    start: str
    documentation: str


class Health(msgspec.Struct, frozen=True):
    """A probe that found nothing."""

    status: Literal["ok"]


ABOUT: Final = About(
    service="Earshot",
    does="sound analysis: audio in, live or whole, sound events and speech out",
    start="POST /audio_sessions/ or /api/v1/analyze_file with the header X-Api-Key",
    documentation="/docs for people, /openapi.json for programs; probes at /healthz, /readyz and /metrics",
)
NOT_READY: Final = "not ready"
WELL: Final = Health("ok")


class ProbeContext(msgspec.Struct, frozen=True):
    """What the probes read."""

    health: health.Health
    meters: Meters
    about: About = ABOUT
    #: Reasons are the operator's alone.
    silent: bool = False


async def about(call: Call, context: ProbeContext) -> Reply:
    """GET /: what answers here, for a person with a browser."""
    return json_reply(context.about)


async def healthz(call: Call, context: ProbeContext) -> Reply:
    """GET /healthz: 503 with the reason once the process is about to stop."""
    return _probe_reply(context.health.alive())


async def readyz(call: Call, context: ProbeContext) -> Reply:
    """GET /readyz: 503 with what is waited for until requests can be served."""
    reason = context.health.ready()
    return _probe_reply(NOT_READY if reason and context.silent else reason)


async def metrics(call: Call, context: ProbeContext) -> Reply:
    """GET /metrics: the Prometheus text format."""
    return reply_of_bytes(200, EXPOSITION, context.meters.exposition())


def about_deployment(docs: bool, metrics_here: bool) -> About:
    """Return what a deployment says of itself."""
    documents = "/docs for people, /openapi.json for programs; " if docs else ""
    probes = "/healthz, /readyz and /metrics" if metrics_here else "/healthz and /readyz"
    return msgspec.structs.replace(ABOUT, documentation=f"{documents}probes at {probes}")


def _probe_reply(reason: str | None) -> Reply:
    if reason is not None:
        raise Unavailable(reason)
    return json_reply(WELL)
