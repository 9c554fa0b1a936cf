"""A client that costs little CPU: requests are built in advance, answers are read with one regular expression."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import pybase64

from benchmarks import audio
from benchmarks.plans import Target
from benchmarks.wire import HttpConnection, request

_SESSION: Final = re.compile(rb'"session_id":"(\w+)"')
_COUNT: Final = re.compile(rb'"page":\{"count":([0-9]+)')
_TOKEN: Final = re.compile(rb'"next_token":"([^"]+)"')


class LoadError(Exception):
    """The server gave an unexpected answer, which makes the measurement worthless."""


def extract(pattern: re.Pattern[bytes], answer: bytes) -> str:
    """Return the first group of a pattern in an answer.

    Raises:
        LoadError: The pattern does not occur.
    """
    match = pattern.search(answer)
    if match is None:
        raise LoadError(f"{pattern.pattern!r} is not in {answer[:200]!r}")
    return match[1].decode("ascii")


class LoadClient:
    """One connection that serves one session after another."""

    def __init__(self, connection: HttpConnection, target: Target) -> None:
        self.connection = connection
        self.target = target
        self.session = ""

    @classmethod
    async def connect(cls, target: Target) -> LoadClient:
        return cls(await HttpConnection.open(target.port), target)

    async def ask(self, *parts: bytes) -> bytes:
        """Send a request and return the body of its answer.

        Raises:
            LoadError: The status is not 200.
        """
        status, answer = await self.connection.ask(*parts)
        if status != 200:
            raise LoadError(f"{status} {answer[:200]!r} to {parts[0][:80]!r}")
        return answer

    async def create(self, kind: str) -> str:
        """Create the session that later calls use; return its id."""
        body = f'{{"type":"{kind}","content_type":"{audio.CONTENT_TYPE}"}}'.encode("ascii")
        head = request("POST", "/audio_sessions/", len(body), f"X-Api-Key: {self.target.key}\r\n")
        self.session = extract(_SESSION, await self.ask(head, body))
        return self.session

    def uploads(self, sound: list[bytes], chunks: int) -> Sequence[tuple[bytes, ...]]:
        """Return the upload requests of the first `chunks` chunks, with the audio repeated in turn."""
        path = f"/audio_sessions/{self.session}/chunks/"
        bodies = [b'{"data":"%s"}' % pybase64.b64encode(data) for data in sound]
        turn = [bodies[number % len(bodies)] for number in range(chunks)]
        return [(request("PUT", f"{path}{number}", len(body)), body) for number, body in enumerate(turn)]

    async def windows(self, first: int) -> int:
        """Wait for windows from `first` on; return the number on the page, 0 if no more will come."""
        answer = await self.ask(request("GET", f"/audio_sessions/{self.session}/status?offset={first}"))
        return int(extract(_COUNT, answer))

    async def follow(self, token: str) -> tuple[int, str]:
        """Wait for the page of a token, "" for the first; return its windows and the next token."""
        query = f"?next_token={token}" if token else ""
        answer = await self.ask(request("GET", f"/audio_sessions/{self.session}/status{query}"))
        return int(extract(_COUNT, answer)), extract(_TOKEN, answer)
