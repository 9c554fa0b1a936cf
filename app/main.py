"""The Starlette application: ports in, routes out."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response

from app.admin.routes import admin_routes
from app.edge import Edge, command_ids
from app.http.forwarding import Forwarder
from app.http.options import EdgeOptions
from app.http.shortcut import ShortCut
from app.jobs.rendering import Results
from app.keys import ORGANIZATION_WORDING, PROJECT_WORDING, Keyring
from app.metrics import Gauges, Meters
from app.routes import error_shape, routes
from app.sessions.rendering import Renderer
from app.sessions.tokens import Tokens
from topics.ports.administration import Administration
from topics.ports.directory import Directory
from topics.ports.health import Health
from topics.ports.jobs import Jobs
from topics.ports.prober import Prober
from topics.ports.sessions import Sessions
from topics.ports.speakers import Speakers


def create_app(
    sessions: Sessions,
    jobs: Jobs,
    directory: Directory,
    prober: Prober,
    speakers: Speakers,
    health: Health,
    options: EdgeOptions,
    gauges: Gauges = tuple,
    administration: Administration | None = None,
) -> Starlette:
    """Return the edge as an ASGI application.

    `gauges` gives the numbers of the other rooms when metrics are read; `administration` is needed by the operator's
    interface alone.
    """
    edge = Edge(
        sessions=sessions,
        jobs=jobs,
        directory=directory,
        prober=prober,
        speakers=speakers,
        health=health,
        options=options,
        project_keys=Keyring(directory.project, PROJECT_WORDING, options.key_cache_seconds),
        organization_keys=Keyring(directory.organization, ORGANIZATION_WORDING, options.key_cache_seconds),
        tokens=Tokens(options.secret),
        renderer=Renderer(sessions, options.page_cache_bytes),
        results=Results(jobs, sessions.tags),
        meters=Meters(gauges),
        commands=command_ids(),
        forwarder=Forwarder(options.poll_seconds),
    )

    async def no_such_path(request: Request, error: Exception) -> Response:
        edge.meters.refused(404)
        path = request.scope["path"].removeprefix(request.scope.get("root_path", ""))
        reply = error_shape(path)(404, None)
        return Response(reply.body, reply.status, media_type="application/json")

    admin = [] if administration is None else admin_routes(edge, administration, options.admin_key)
    app = ShortCut(routes=[*routes(edge), *admin], exception_handlers={404: no_such_path})
    app.router.redirect_slashes = False
    #: For whoever stops the service: it has connections to close.
    app.state.forwarder = edge.forwarder
    return app
