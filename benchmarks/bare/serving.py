"""Shared by the bare HTTP handlers: Starlette on uvicorn, uvloop and httptools, without access log."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine

import uvicorn
import uvloop
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

Handler = Callable[[Request], Awaitable[Response]]


async def ready(request: Request) -> Response:
    """Answer the launcher's readiness probe."""
    return Response()


async def serve(port: int, *routes: tuple[str, str, Handler]) -> None:
    """Serve (method, path, handler) until the process ends."""
    table = [Route(path, handler, methods=[method]) for method, path, handler in (("GET", "/readyz", ready), *routes)]
    config = uvicorn.Config(
        Starlette(routes=table),
        port=port,
        loop="none",
        http="httptools",
        lifespan="off",
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=1,
    )
    await uvicorn.Server(config).serve()


def run(serving: Coroutine[object, object, None]) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serving)
