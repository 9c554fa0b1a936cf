"""A bare handler that answers status reads with the bytes of a file: `python -m benchmarks.bare.reads PORT FILE`."""

import asyncio
import sys
from pathlib import Path

import uvloop
from starlette.requests import Request
from starlette.responses import Response

from benchmarks.bare.serving import serve


async def run(port: int, body: bytes) -> None:
    async def status(request: Request) -> Response:
        return Response(body, media_type="application/json")

    await serve(port, ("GET", "/audio_sessions/{session}/status", status))


def main() -> None:
    port, file = sys.argv[1:]
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run(int(port), Path(file).read_bytes()))


if __name__ == "__main__":
    main()
