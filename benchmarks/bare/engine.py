"""A speech engine that never answers: `python -m benchmarks.bare.engine PORT`."""

import asyncio
import sys

from starlette.requests import Request
from starlette.responses import Response

from benchmarks.bare.serving import run, serve

HANG_SECONDS = 120.0


async def hang(request: Request) -> Response:
    """Read the audio, then keep the client waiting."""
    await request.body()
    await asyncio.sleep(HANG_SECONDS)
    return Response(status_code=500)


if __name__ == "__main__":
    run(serve(int(sys.argv[1]), ("POST", "/{path:path}", hang)))
