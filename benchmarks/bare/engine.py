"""A speech engine that never answers: `python -m benchmarks.bare.engine PORT`."""

import asyncio
import sys

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

HANG_SECONDS = 120.0


async def hang(request: Request) -> Response:
    """Read the audio, then keep the client waiting."""
    await request.body()
    await asyncio.sleep(HANG_SECONDS)
    return Response(status_code=500)


async def ready(request: Request) -> Response:
    """Answer the launcher's readiness probe."""
    return Response()


if __name__ == "__main__":
    routes = [Route("/readyz", ready), Route("/{path:path}", hang, methods=["POST"])]
    uvicorn.run(Starlette(routes=routes), port=int(sys.argv[1]), log_level="error", timeout_graceful_shutdown=1)
