"""The Starlette application: ports in, routes out."""

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import count
from typing import Final

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from app.admin.guard import AdminContext
from app.admin.nodes import NodeList
from app.alarms.alarm_context import AlarmContext, alarm_list
from app.alarms.rule_trials import trial_quota
from app.cluster.cursors import ListCursors
from app.cluster.forwarding import Forwarder, Placement
from app.cluster.lists import Elsewhere, ProjectList
from app.cluster.takeovers import Placed, Takeovers
from app.dashboard.operations import DashboardContext
from app.documents.operations import DOCUMENTS, DocumentContext, Documents
from app.http.bodies import SHARES, SMALL_BODY, BodyQuota, chunk_body
from app.http.call import Call
from app.http.metrics import Meters, Readings
from app.http.operation import request_id
from app.http.resource import mount
from app.http.turns import LongWork, LoopTurns
from app.http.upload_bounds import UploadQuota
from app.http.uploads import Uploads
from app.identity.authentication import Authenticator, bearer
from app.identity.changed_keys import ChangedKeys
from app.identity.keys import AUDIO, ORGANIZATION, PROJECT, KeyRateLimiter, Keyring
from app.jobs.audio import download_quota, link_token
from app.jobs.job_context import JobContext
from app.jobs.lists import listed_job
from app.jobs.rendering import ResultRenderer
from app.openai.operations import OpenAIContext
from app.options import EdgeOptions
from app.own_sounds.kept_embeddings import OwnSoundContext
from app.parts import (
    ALARMS,
    DASHBOARD,
    JOBS,
    LIVE,
    OPENAI,
    OPERATOR,
    OPERATOR_PROBES,
    OWN_SOUNDS,
    PROJECTS,
    SERVICE,
    SERVICE_APART,
    SESSIONS,
    SOCKETS,
    SPEAKERS,
    error_shape,
)
from app.probes import ProbeContext, about_deployment
from app.projects.operations import ProjectContext
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
from app.speakers.operations import SpeakerContext
from topics.catalog import DEFAULT_CHUNK_LIMIT
from topics.geometry import SENSE
from topics.geometry import SESSIONS as SESSIONS_GEOMETRY
from topics.jobs.rules import VISIBLE_STATES
from topics.ports.administration import LocalAdministration
from topics.ports.alarms import Alarms, AlarmSettings, TestDelivery
from topics.ports.directory import Directory
from topics.ports.health import Health, Reading
from topics.ports.jobs import Jobs
from topics.ports.models import Models
from topics.ports.nodes import Nodes, QueueFacts
from topics.ports.own_sounds import OwnSoundStore
from topics.ports.prober import MAX_PROBES, Prober
from topics.ports.projects import Projects
from topics.ports.sessions import Sessions
from topics.ports.sign_ins import SignIns
from topics.ports.speakers import Speakers
from topics.ports.standby import Standby
from topics.sessions.rules import LISTED_STATES
from topics.tally import Tallies, Tally, own_tallies

#: Wrong operator keys per second from one address; ten times as many in total.
ADMIN_TRIES: Final = 10.0
#: Longest wait of a status read, in seconds, where only a stand-by answers.
STANDBY_POLL_SECONDS: Final = 0.5


class Ports(msgspec.Struct, frozen=True, kw_only=True):
    sessions: Sessions
    jobs: Jobs
    #: What this node stands by for, if other nodes can own anything.
    standby: Standby | None = None
    directory: Directory
    prober: Prober
    speakers: Speakers
    projects: Projects
    sign_ins: SignIns
    own_sounds: OwnSoundStore
    alarms: Alarms
    alarm_settings: AlarmSettings
    test_delivery: TestDelivery
    health: Health
    models: Models
    #: Metrics of the other rooms, read at each scrape.
    readings: Readings = tuple
    #: Needed only by the operator's interface.
    administration: LocalAdministration | None = None
    nodes: Nodes | None = None
    #: Numbers of the other lanes of this machine by URL, and what they count together.
    lanes: Mapping[str, int] = msgspec.field(default_factory=dict)
    tallies: Tallies = own_tallies
    #: Sends them a message, which they pass to `app.state.hear`.
    tell: Callable[[bytes], None] = lambda message: None
    #: Called when keys have changed elsewhere: projects may be deleted.
    heard: Callable[[], None] = lambda: None
    #: A random id of this process.
    process: str = ""
    #: Answers another node that asks whether this one has seen the death of a process; None if there are no others.
    testify: Callable[[bytes], bytes] | None = None


def create_app(ports: Ports, options: EdgeOptions) -> Starlette:
    """Return the edge as an ASGI application."""
    edge = _Edge(ports, options)
    operator = edge.operator_routes()
    with_operator = bool(operator) and not options.admin_apart
    served = [*edge.document_routes(with_operator), *edge.routes(), *(operator if with_operator else ())]
    app = edge.application(served, with_operator, options.cors_origins)
    #: The service closes its connections when it stops.
    app.state.forwarder = edge.forwarder
    #: The input of connections takes turns too, by sender.
    app.state.turns = edge.turns
    keys = edge.changed_keys
    app.state.sender = edge.sender
    #: The service periodically records which keys were used.
    app.state.keyrings = (keys.projects, keys.organizations)
    #: Takes what another lane tells.
    app.state.hear = keys.hear
    #: Has keys looked up again, of which some have ended elsewhere.
    app.state.doubt = keys.doubt
    #: Ends the keys of a project that was deleted elsewhere.
    app.state.end_keys = partial(keys.project, ended=True)
    #: Serves the operator at another address, with the same metrics.
    app.state.operator = None
    #: Serves other lanes and nodes; the lanes of this machine need the operator's interface too.
    app.state.inner = app
    if options.admin_apart:
        context = ProbeContext(ports.health, edge.meters, edge.elsewhere)
        probing = mount(OPERATOR_PROBES, context, edge.meters, BodyQuota(0))
        app.state.operator = edge.application([*operator, *probing], bool(operator))
        app.state.inner = _within(edge.application([*served, *operator, *probing], bool(operator)), app)
    return app


def _within(machine: ASGIApp, others: ASGIApp) -> ASGIApp:
    """Return an application that serves clients of this machine by `machine`, and all others by `others`."""

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        client, server = scope.get("client"), scope.get("server")
        await (machine if client and server and client[0] == server[0] else others)(scope, receive, send)

    return serve


def command_ids() -> Iterator[str]:
    """Yield ids that no other process or later run issues: 64 random bits, then a count."""
    run = secrets.token_hex(8)
    return (f"{run}-{number:x}" for number in count())


class _Edge:
    """One edge: what its parts share, the context of each, and its routes."""

    def __init__(self, ports: Ports, options: EdgeOptions) -> None:
        self.ports = ports
        self.options = options
        self.meters = Meters(self._readings)
        self.forwarder = Forwarder(options.poll_seconds, ports.sessions.plan, options.trust)
        self.elsewhere = Elsewhere(self.forwarder, tuple(ports.lanes))
        self.turns = LoopTurns()
        self.sockets = SocketQuota(options.body_bytes, self.turns, ports.tallies("sockets"))
        self.room = BodyQuota(options.body_bytes)
        self.spool = UploadQuota(options.spool, options.upload_bounds, ports.tallies("uploads"))
        self.tries = KeyRateLimiter(options.key_tries, ports.tallies("tries"))
        directory, seconds = ports.directory, options.key_cache_seconds
        self.changed_keys = ChangedKeys(
            Keyring(PROJECT, directory.project, seconds, self.tries),
            Keyring(ORGANIZATION, directory.organization, seconds, self.tries),
            Keyring(AUDIO, directory.audio_link, seconds, self.tries),
            ports.tell,
            ports.heard,
        )
        keys = self.changed_keys
        self.sender = sender_of(keys.projects, keys.organizations, ports.sessions, ports.jobs)
        self.takeovers = Takeovers(self.sender)
        self.project_keys = Authenticator(self.changed_keys.projects, self.meters)
        self.organization_keys = Authenticator(self.changed_keys.organizations, self.meters)
        self.commands = command_ids()
        self.cursors = ListCursors(options.secret)
        self.uploads = Uploads(self.spool, options.upload_idle_seconds, options.upload_slowest)
        self.decoding = LongWork(1)

    def application(self, routes: list[Route], with_operator: bool, origins: Sequence[str] = ()) -> Starlette:
        async def no_such_path(request: Request, error: Exception) -> Response:
            self.meters.refused(404)
            path = request.scope["path"].removeprefix(request.scope.get("root_path", ""))
            reply = error_shape(path, with_operator)(404, None)
            named = {"x-request-id": request_id(Call(request.scope, request.receive, BodyQuota(0))).decode("ascii")}
            return Response(reply.body, reply.status, named, media_type="application/json")

        return ShortCut(routes, origins, exception_handlers={404: no_such_path})

    def _readings(self) -> Iterator[Reading]:
        yield from self.ports.readings()
        yield Reading("earshot_sockets", "Sessions whose audio comes by a socket.", len(self.sockets))

    def routes(self) -> list[Route]:
        """Return the routes of all parts but the documents and the operator's interface."""
        ports, options, keys = self.ports, self.options, self.changed_keys
        sessions, jobs = self._sessions(), self._jobs()
        sense = msgspec.structs.replace(sessions, geometry=SENSE, chunk_limit=options.chunk_limit)
        bearers = Authenticator(keys.projects, self.meters, bearer)
        by_socket = Authenticator(keys.projects, self.meters, socket_key)
        sockets = SocketContext(
            msgspec.structs.replace(sessions, project_keys=by_socket),
            self.sockets,
            KeyWatch(),
        )
        speakers = SpeakerContext(
            ports.speakers,
            ports.jobs,
            self.forwarder,
            self.takeovers,
            self.organization_keys,
            self.meters,
            self.uploads,
            self.turns,
        )
        own_sounds = OwnSoundContext(ports.own_sounds, self.project_keys, keys, ports.sessions, ports.jobs, self.turns)
        alarms = self._alarms()
        projects = ProjectContext(options, ports.projects, ports.models, self.project_keys, keys)
        openai = OpenAIContext(msgspec.structs.replace(jobs, project_keys=bearers), ports.speakers)
        dashboard = DashboardContext(ports.sign_ins, self.tries, self.project_keys, self.organization_keys)
        about = about_deployment(options.docs, not options.admin_apart)
        page = "dashboard/" if options.dashboard else "docs" if options.docs else ""
        silent = options.admin_apart
        probe = ProbeContext(
            ports.health, self.meters, self.elsewhere, about, silent, ports.process, ports.testify, page
        )
        placed: dict[str, Placed] = {"session_id": ports.sessions, "job_id": ports.jobs}
        owned = partial(Placement, self.forwarder, self.takeovers, placed, self.project_keys, standby=ports.standby)
        far_sessions, far_jobs = self._standby(sessions, jobs)
        shared = self.meters, self.room
        return [
            *mount(SESSIONS, sessions, *shared, owned(chunk_body(sessions.chunk_limit)), standby=far_sessions),
            *mount(SESSIONS, sense, *shared, owned(chunk_body(sense.chunk_limit)), SESSIONS.alias, far_sessions),
            *mount(JOBS, jobs, *shared, owned(), standby=far_jobs),
            *mount(SOCKETS, sockets, *shared),
            *mount(LIVE, sessions, *shared),
            *mount(OWN_SOUNDS, own_sounds, *shared, owned()),
            *mount(ALARMS, alarms, *shared, owned()),
            *mount(PROJECTS, projects, *shared),
            *mount(SPEAKERS, speakers, *shared),
            *mount(OPENAI, openai, *shared),
            *(mount(DASHBOARD, dashboard, *shared) if options.dashboard else []),
            *mount(SERVICE_APART if options.admin_apart else SERVICE, probe, *shared),
        ]

    def _standby(
        self, sessions: SessionContext, jobs: JobContext
    ) -> tuple[SessionContext, JobContext] | tuple[None, None]:
        """Return the contexts of what this node stands by for."""
        if (standby := self.ports.standby) is None:
            return None, None
        replace = msgspec.structs.replace
        # A reader that waits for news from here could have it from the next owner.
        options = replace(self.options, poll_seconds=min(self.options.poll_seconds, STANDBY_POLL_SECONDS))
        # The cache of the others' windows is for what was shown by owners.
        renderer = EventRenderer(standby.sessions, 0)
        return (
            replace(sessions, options=options, sessions=standby.sessions, renderer=renderer),
            replace(jobs, jobs=standby.jobs, renderer=ResultRenderer(standby.jobs, standby.sessions.tags)),
        )

    def _sessions(self) -> SessionContext:
        ports, options, renderer = self.ports, self.options, EventRenderer(self.ports.sessions)
        return SessionContext(
            options=options,
            sessions=ports.sessions,
            jobs=ports.jobs,
            alarms=ports.alarms,
            list=ProjectList("sessions", LISTED_STATES, ports.sessions, listed_session, self.cursors, self.forwarder),
            takeovers=self.takeovers,
            project_keys=self.project_keys,
            tokens=PageTokens(options.secret),
            renderer=renderer,
            meters=self.meters,
            commands=self.commands,
            geometry=SESSIONS_GEOMETRY,
            chunk_limit=DEFAULT_CHUNK_LIMIT,
            listeners=listener_quota(),
            activity=ActivityCounter(renderer, self.turns),
            turns=self.turns,
            decoding=self.decoding,
        )

    def _jobs(self) -> JobContext:
        ports = self.ports
        return JobContext(
            options=self.options,
            jobs=ports.jobs,
            list=ProjectList("jobs", VISIBLE_STATES, ports.jobs, listed_job, self.cursors, self.forwarder),
            directory=ports.directory,
            prober=ports.prober,
            project_keys=self.project_keys,
            renderer=ResultRenderer(ports.jobs, ports.sessions.tags),
            meters=self.meters,
            commands=self.commands,
            forwarder=self.forwarder,
            takeovers=self.takeovers,
            uploads=self.uploads,
            audio_links=Authenticator(self.changed_keys.audio, self.meters, link_token),
            downloads=download_quota(ports.tallies("downloads")),
            turns=self.turns,
            decoding=self.decoding,
            probing=LongWork(MAX_PROBES),
        )

    def _alarms(self) -> AlarmContext:
        ports = self.ports
        return AlarmContext(
            ports.alarm_settings,
            ports.test_delivery,
            ports.alarms,
            alarm_list(ports.alarms, ports.sessions, self.cursors, self.forwarder),
            ports.sessions,
            ports.own_sounds,
            self.project_keys,
            self.turns,
            trial_quota(),
        )

    def document_routes(self, with_operator: bool) -> list[Route]:
        """Return the routes of the documents, which include the operator's interface if it has the same address."""
        if not self.options.docs:
            return []

        def build(name: str) -> bytes:
            from app.documents.build import build  # Imports what only documents need, so not at start.

            return build(name, self.options, with_operator)

        return mount(DOCUMENTS, DocumentContext(Documents(build)), self.meters, BodyQuota(0))

    def operator_routes(self) -> list[Route]:
        """Return the routes of the operator's interface, or none without accounts, nodes or a key to them."""
        if self.ports.nodes is None:
            return []
        nodes = NodeList(self.ports.nodes, self.forwarder, self._queues, self.ports.lanes)
        key, tally = self.options.admin_key, self.ports.tallies("operator's tries")
        return admin_routes(self.ports.administration, nodes, key, self.meters, self.changed_keys, tally)

    def _queues(self) -> tuple[QueueFacts, ...]:
        uploads, size = self.spool.held
        bounds = self.spool.bounds
        return (
            QueueFacts("bodies of requests in memory", bytes=self.room.used, bytes_bound=self.room.limit),
            QueueFacts("uploads on the disk", size, bounds.spool_bytes, uploads, bounds.uploads),
        )


def admin_routes(
    administration: LocalAdministration | None,
    nodes: NodeList,
    key: bytes | None,
    meters: Meters,
    changed_keys: ChangedKeys,
    tally: Tally | None = None,
) -> list[Route]:
    """Return the routes of the operator's interface, or none without accounts or a key to them."""
    if administration is None or key is None:
        return []
    # A limiter of its own, so that attempts elsewhere cannot lock the operator out.
    tries = KeyRateLimiter(ADMIN_TRIES, tally)
    context = AdminContext(administration, nodes, meters, changed_keys, tries, key)
    # Its own memory, so that it stays usable while other clients send too much.
    return mount(OPERATOR, context, meters, BodyQuota(SHARES[-1] * SMALL_BODY))
