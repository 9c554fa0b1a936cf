"""The Starlette application: ports in, routes out."""

import secrets
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import count
from typing import Final

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from app.admin.admin_bodies import PREFIX as ADMIN_PREFIX
from app.admin.guard import AdminContext, admin_error, guard
from app.admin.nodes import NodeList
from app.cluster.cursors import ListCursors
from app.cluster.forwarding import Forwarder, Placement
from app.cluster.lists import ProjectList
from app.dashboard.operations import DashboardContext
from app.documents import operations as document_operations
from app.documents.operations import DocumentContext, Documents
from app.http.bodies import SHARES, SMALL_BODY, BodyQuota, chunk_body
from app.http.call import Call
from app.http.descriptions import operations_of, table_of
from app.http.metrics import Gauges, Meters
from app.http.operation import InterfacePart, request_id
from app.http.replies import session_error
from app.http.resource import mount
from app.http.turns import LongWork, LoopTurns
from app.http.upload_bounds import UploadQuota
from app.http.uploads import Uploads
from app.identity.authentication import Authenticator, bearer
from app.identity.changed_keys import ChangedKeys
from app.identity.keys import AUDIO, ORGANIZATION, PROJECT, KeyRateLimiter, Keyring
from app.jobs.audio import download_quota, link_token
from app.jobs.errors import job_error
from app.jobs.job_context import JobContext
from app.jobs.lists import listed_job
from app.jobs.rendering import ResultRenderer
from app.openai.errors import openai_error
from app.openai.operations import OpenAIContext
from app.options import EdgeOptions
from app.own_sounds.kept_embeddings import OwnSoundContext
from app.probes import ProbeContext, about_deployment
from app.projects.operations import ProjectContext
from app.routes import (
    ADMIN_ROUTES,
    DASHBOARD_ROUTES,
    JOB_ROUTES,
    JOBS_PREFIX,
    LIVE_ROUTES,
    OPENAI_PREFIX,
    OPENAI_ROUTES,
    OPERATOR_PROBES,
    OWN_SOUND_ROUTES,
    PROJECT_ROUTES,
    SENSE_PREFIX,
    SERVICE_ROUTES,
    SESSION_ROUTES,
    SOCKET_ROUTES,
    SPEAKER_ROUTES,
    SPEAKERS_PREFIX,
    error_shape,
)
from app.senders import sender_of
from app.sessions.activity_counter import ActivityCounter
from app.sessions.lists import listed_session
from app.sessions.live import listener_quota
from app.sessions.rendering import EventRenderer
from app.sessions.session_context import SessionContext
from app.sessions.socket_opening import SocketContext, socket_key
from app.sessions.socket_quota import KeyWatch, SocketQuota
from app.sessions.tokens import PageTokens
from app.shortcut import ShortCut
from app.speakers.errors import speaker_error
from app.speakers.operations import SpeakerContext
from topics.catalog import DEFAULT_CHUNK_LIMIT
from topics.geometry import SENSE, SESSIONS
from topics.jobs.rules import VISIBLE_STATES
from topics.ports.administration import LocalAdministration
from topics.ports.directory import Directory
from topics.ports.health import Health
from topics.ports.jobs import Jobs
from topics.ports.models import Models
from topics.ports.nodes import Nodes, QueueFacts
from topics.ports.own_sounds import OwnSoundStore
from topics.ports.prober import MAX_PROBES, Prober
from topics.ports.projects import Projects
from topics.ports.sessions import Sessions
from topics.ports.sign_ins import SignIns
from topics.ports.speakers import Speakers
from topics.sessions.rules import LISTED_STATES

#: Wrong operator keys per second from one address; ten times as many in total.
ADMIN_TRIES: Final = 10.0


class Ports(msgspec.Struct, frozen=True, kw_only=True):
    sessions: Sessions
    jobs: Jobs
    directory: Directory
    prober: Prober
    speakers: Speakers
    projects: Projects
    sign_ins: SignIns
    own_sounds: OwnSoundStore
    health: Health
    models: Models
    #: Metrics of the other rooms, read at each scrape.
    gauges: Gauges = tuple
    #: Needed only by the operator's interface.
    administration: LocalAdministration | None = None
    nodes: Nodes | None = None


def create_app(ports: Ports, options: EdgeOptions) -> Starlette:
    """Return the edge as an ASGI application."""
    meters, forwarder, no_room = Meters(ports.gauges), Forwarder(options.poll_seconds), BodyQuota(0)

    def application(routes: list[Route], with_operator: bool, origins: Sequence[str] = ()) -> Starlette:
        async def no_such_path(request: Request, error: Exception) -> Response:
            meters.refused(404)
            path = request.scope["path"].removeprefix(request.scope.get("root_path", ""))
            reply = error_shape(path, with_operator)(404, None)
            named = {"x-request-id": request_id(Call(request.scope, request.receive, no_room)).decode("ascii")}
            return Response(reply.body, reply.status, named, media_type="application/json")

        return ShortCut(routes, origins, exception_handlers={404: no_such_path})

    room, spool = BodyQuota(options.body_bytes), UploadQuota(options.spool, options.upload_bounds)
    tries, seconds = KeyRateLimiter(options.key_tries), options.key_cache_seconds
    changed_keys = ChangedKeys(
        Keyring(PROJECT, ports.directory.project, seconds, tries),
        Keyring(ORGANIZATION, ports.directory.organization, seconds, tries),
        Keyring(AUDIO, ports.directory.audio_link, seconds, tries),
    )
    operator = []
    if ports.nodes is not None:
        nodes = NodeList(ports.nodes, forwarder, lambda: _queues(room, spool))
        operator = admin_routes(ports.administration, nodes, options.admin_key, meters, changed_keys)
    turns = LoopTurns()
    routes = _routes(ports, options, meters, forwarder, tries, changed_keys, room, spool, turns)
    with_operator = bool(operator) and not options.admin_apart
    documents = document_routes(options, meters, with_operator) if options.docs else []
    served = [*documents, *routes, *(operator if with_operator else ())]
    app, apart = application(served, with_operator, options.cors_origins), None
    if options.admin_apart:
        probes = {path: SERVICE_ROUTES[path] for path in OPERATOR_PROBES}
        part = InterfacePart(session_error, meters, no_room)
        probing = mount("", probes, ProbeContext(ports.health, meters), part)
        apart = application([*operator, *probing], bool(operator))
    #: The service closes its connections when it stops.
    app.state.forwarder = forwarder
    #: The input of connections takes turns too, by sender.
    app.state.turns = turns
    app.state.sender = sender_of(changed_keys.projects, changed_keys.organizations, ports.sessions, ports.jobs)
    #: The service periodically records which keys were used.
    app.state.keyrings = (changed_keys.projects, changed_keys.organizations)
    #: Ends the keys of a project that was deleted elsewhere.
    app.state.end_keys = partial(changed_keys.project, ended=True)
    #: Serves the operator at another address, with the same metrics.
    app.state.operator = apart
    return app


def _queues(room: BodyQuota, spool: UploadQuota) -> tuple[QueueFacts, ...]:
    uploads, size = spool.held
    bounds = spool.bounds
    return (
        QueueFacts("bodies of requests in memory", bytes=room.used, bytes_bound=room.limit),
        QueueFacts("uploads on the disk", size, bounds.spool_bytes, uploads, bounds.uploads),
    )


def command_ids() -> Iterator[str]:
    """Yield ids that no other process or later run issues: 64 random bits, then a count."""
    run = secrets.token_hex(8)
    return (f"{run}-{number:x}" for number in count())


def _routes(
    ports: Ports,
    options: EdgeOptions,
    meters: Meters,
    forwarder: Forwarder,
    tries: KeyRateLimiter,
    changed_keys: ChangedKeys,
    room: BodyQuota,
    spool: UploadQuota,
    turns: LoopTurns,
) -> list[Route]:
    project_keys = Authenticator(changed_keys.projects, meters)
    organization_keys = Authenticator(changed_keys.organizations, meters)
    audio_links = Authenticator(changed_keys.audio, meters, link_token)
    dashboard = DashboardContext(ports.sign_ins, tries, project_keys, organization_keys)
    commands, cursors = command_ids(), ListCursors(options.secret)
    uploads = Uploads(spool, options.upload_idle_seconds, options.upload_slowest)
    renderer, decoding = EventRenderer(ports.sessions), LongWork(1)
    sessions = SessionContext(
        options=options,
        sessions=ports.sessions,
        jobs=ports.jobs,
        list=ProjectList("sessions", LISTED_STATES, ports.sessions, listed_session, cursors, forwarder),
        project_keys=project_keys,
        tokens=PageTokens(options.secret),
        renderer=renderer,
        meters=meters,
        commands=commands,
        geometry=SESSIONS,
        chunk_limit=DEFAULT_CHUNK_LIMIT,
        listeners=listener_quota(),
        activity=ActivityCounter(renderer, turns),
        turns=turns,
        decoding=decoding,
    )
    sense = msgspec.structs.replace(sessions, geometry=SENSE, chunk_limit=options.chunk_limit)
    jobs = JobContext(
        options=options,
        jobs=ports.jobs,
        list=ProjectList("jobs", VISIBLE_STATES, ports.jobs, listed_job, cursors, forwarder),
        directory=ports.directory,
        prober=ports.prober,
        project_keys=project_keys,
        renderer=ResultRenderer(ports.jobs, ports.sessions.tags),
        meters=meters,
        commands=commands,
        forwarder=forwarder,
        uploads=uploads,
        audio_links=audio_links,
        downloads=download_quota(),
        turns=turns,
        decoding=decoding,
        probing=LongWork(MAX_PROBES),
    )
    bearers = Authenticator(changed_keys.projects, meters, bearer)
    openai = OpenAIContext(msgspec.structs.replace(jobs, project_keys=bearers), ports.speakers)
    speakers = SpeakerContext(ports.speakers, ports.jobs, forwarder, organization_keys, meters, uploads, turns)
    sockets = SocketContext(
        msgspec.structs.replace(sessions, project_keys=Authenticator(changed_keys.projects, meters, socket_key)),
        SocketQuota(options.body_bytes, turns),
        KeyWatch(),
    )
    projects = ProjectContext(options, ports.projects, ports.models, project_keys, changed_keys)
    own_sounds = OwnSoundContext(ports.own_sounds, project_keys, changed_keys, ports.sessions, ports.jobs, turns)

    owners = {"session_id": ports.sessions.owner, "job_id": ports.jobs.owner}

    def session_part(context: SessionContext) -> InterfacePart:
        body_limit = chunk_body(context.chunk_limit)
        return InterfacePart(session_error, meters, room, Placement(forwarder, owners, project_keys, body_limit))

    job_part = InterfacePart(job_error, meters, room, Placement(forwarder, owners, project_keys))
    plain = InterfacePart(session_error, meters, room)
    about = about_deployment(options.docs, not options.admin_apart)
    page = "dashboard/" if options.dashboard else "docs" if options.docs else ""
    probes = {path: row for path, row in SERVICE_ROUTES.items() if path != "/metrics" or not options.admin_apart}
    return [
        *mount("", SESSION_ROUTES, sessions, session_part(sessions)),
        *mount(SENSE_PREFIX, SESSION_ROUTES, sense, session_part(sense)),
        *mount(JOBS_PREFIX, JOB_ROUTES, jobs, job_part),
        *mount("", SOCKET_ROUTES, sockets, plain),
        *mount(JOBS_PREFIX, LIVE_ROUTES, sessions, InterfacePart(job_error, meters, room)),
        *mount(JOBS_PREFIX, OWN_SOUND_ROUTES, own_sounds, job_part),
        *mount(JOBS_PREFIX, PROJECT_ROUTES, projects, InterfacePart(job_error, meters, room)),
        *mount(SPEAKERS_PREFIX, SPEAKER_ROUTES, speakers, InterfacePart(speaker_error, meters, room)),
        *mount(OPENAI_PREFIX, OPENAI_ROUTES, openai, InterfacePart(openai_error, meters, room)),
        *(mount("", DASHBOARD_ROUTES, dashboard, plain) if options.dashboard else []),
        *mount("", probes, ProbeContext(ports.health, meters, about, options.admin_apart, page), plain),
    ]


def document_routes(options: EdgeOptions, meters: Meters, with_operator: bool) -> list[Route]:
    """Return the routes of the documents, which include the operator's interface if it has the same address."""

    def build(name: str) -> bytes:
        from app.documents.build import build  # Imports every description, so not at start.

        return build(name, options, with_operator)

    part = InterfacePart(session_error, meters, BodyQuota(0))
    return mount("", table_of(operations_of(document_operations)), DocumentContext(Documents(build)), part)


def admin_routes(
    administration: LocalAdministration | None,
    nodes: NodeList,
    key: bytes | None,
    meters: Meters,
    changed_keys: ChangedKeys,
) -> list[Route]:
    """Return the routes of the operator's interface, or none without accounts or a key to them."""
    if administration is None or key is None:
        return []
    # A limiter of its own, so that attempts elsewhere cannot lock the operator out.
    context = AdminContext(administration, nodes, meters, changed_keys, KeyRateLimiter(ADMIN_TRIES), key)
    # Its own memory, so that it stays usable while other clients send too much.
    part = InterfacePart(admin_error, meters, BodyQuota(SHARES[-1] * SMALL_BODY))
    return mount(ADMIN_PREFIX, guard(ADMIN_ROUTES), context, part)
