"""A bare handler that answers status reads with the bytes of a file: `python -m benchmarks.bare.reads PORT FILE`."""

import sys
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from benchmarks.bare.serving import run, serve


def main() -> None:
    port, file = sys.argv[1:]
    body = Path(file).read_bytes()

    async def status(request: Request) -> Response:
        return Response(body, media_type="application/json")

    run(serve(int(port), ("GET", "/audio_sessions/{session}/status", status)))


if __name__ == "__main__":
    main()
