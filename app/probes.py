"""Operations about the service itself: its name, liveness, readiness and metrics."""

from collections.abc import Callable, Sequence
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from app.cluster.lists import Elsewhere
from app.http.call import Call
from app.http.descriptions import Answer, json_answer, operation
from app.http.metrics import Meters, merged
from app.http.replies import Reply, json_reply, reply_of_bytes
from topics.errors import Unavailable
from topics.ports import health
from topics.ports.health import PROCESS, STANDBYS, WITNESS

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
NAMED: Final = {
    "Earshot-Process": "A random id of the process that answers.",
    "Earshot-Standbys": "`behind` until its stand-by tables have what a takeover needs, then `ready`.",
}
READY: Final = Readiness("ok")
NOTED: Final = Readiness("ok", ["a table was rebuilt", "damaged tables were set aside"])


class ProbeContext(msgspec.Struct, frozen=True):
    health: health.Health
    meters: Meters
    elsewhere: Elsewhere
    about: About = ABOUT
    #: Reasons and notes are only for the operator.
    silent: bool = False
    #: A random id of this process, by which a node learns whether its address reaches it.
    process: str = ""
    #: Answers another node that asks whether this one has seen the death of a process; None if there are no others.
    testify: Callable[[bytes], bytes] | None = None
    #: What a browser gets in place of this: the path of a page, "" if there is none.
    page: str = ""


@operation(
    "GET /",
    answers={
        **json_answer("What this is.", earshot=ABOUT),
        302: Answer(
            "A browser (`Accept: text/html`) is sent to the dashboard, or to the documents if there is none.",
            headers={"Location": "The page."},
        ),
    },
)
async def about(call: Call, context: ProbeContext) -> Reply:
    """Service info."""
    if not context.page or b"text/html" not in call.header(b"accept"):
        reply = json_reply(context.about)
        reply.headers.append(VARY)
        return reply
    address = f"{call.scope.get('root_path', '')}/{context.page}".encode("latin-1")
    return Reply(302, [(b"location", address), (b"content-length", b"0"), VARY])


@operation(
    "GET /healthz", answers=json_answer("Live.", headers=NAMED, well=WELL), faults=(Unavailable("the service stops"),)
)
async def healthz(call: Call, context: ProbeContext) -> Reply:
    """Liveness probe."""
    if (reason := context.health.alive()) is not None:
        raise Unavailable(reason)
    reply = json_reply(WELL)
    standbys = b"behind" if context.health.is_behind() else b"ready"
    reply.headers.extend([(PROCESS.encode(), context.process.encode()), (STANDBYS.encode(), standbys)])
    if context.testify is not None and (question := call.header(WITNESS.encode())):
        reply.headers.append((WITNESS.encode(), context.testify(question)))
    return reply


@operation(
    "GET /readyz",
    answers=json_answer("Ready.", well=READY, noted=NOTED),
    faults=(Unavailable("partitions are being taken over"),),
)
async def readyz(call: Call, context: ProbeContext) -> Reply:
    """Readiness probe."""
    if (reason := context.health.ready()) is not None:
        raise Unavailable(NOT_READY if context.silent else reason)
    return json_reply(READY if context.silent else Readiness("ok", tuple(context.health.notes())))


@operation(
    "GET /metrics",
    answers={
        200: Answer("All of them.", (str,), {"chunks": "earshot_chunks_accepted_total 1042.0\n"}, media="text/plain")
    },
)
async def metrics(call: Call, context: ProbeContext) -> Reply:
    """Read the metrics.

    In Prometheus text format.
    """
    others = await context.elsewhere.parts(call, bytes)
    own = context.meters.exposition()
    return reply_of_bytes(200, EXPOSITION, merged([own, *others]) if others else own)


def about_deployment(docs: bool, metrics_here: bool) -> About:
    documents = "/docs for people, /openapi.json for programs; " if docs else ""
    probes = "/healthz, /readyz and /metrics" if metrics_here else "/healthz and /readyz"
    return msgspec.structs.replace(ABOUT, documentation=f"{documents}probes at {probes}")
