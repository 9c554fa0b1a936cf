"""The Starlette application: ports in, routes out."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response

from app.edge import Edge, command_ids
from app.forwarding import Forwarder
from app.jobs.errors import job_error
from app.jobs.rendering import Results
from app.keys import KeyCache
from app.metrics import Gauges, Meters
from app.options import EdgeOptions
from app.rendering import Renderer
from app.replies import session_error
from app.routes import routes
from app.shortcut import ShortCut
from app.tokens import Tokens
from topics.ports import Directory, Health, Jobs, Prober, Sessions


def create_app(
    sessions: Sessions,
    jobs: Jobs,
    directory: Directory,
    prober: Prober,
    health: Health,
    options: EdgeOptions,
    gauges: Gauges = tuple,
) -> Starlette:
    """Return the edge as an ASGI application; `gauges` gives the numbers of the other rooms when metrics are read."""
    edge = Edge(
        sessions=sessions,
        jobs=jobs,
        directory=directory,
        prober=prober,
        health=health,
        options=options,
        keys=KeyCache(directory, options.key_cache_seconds),
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
        reply = (job_error if path.startswith("/api/") else session_error)(404, None)
        return Response(reply.body, reply.status, media_type="application/json")

    app = ShortCut(routes=routes(edge), exception_handlers={404: no_such_path})
    app.router.redirect_slashes = False
    #: For whoever stops the service: it has connections to close.
    app.state.forwarder = edge.forwarder
    return app
