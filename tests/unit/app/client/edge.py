"""The service's edge behind a server, with requests that fail, and answers that get lost, break or never end."""

import asyncio
from collections import deque

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from tests.unit.app.conftest import House
from tests.unit.app.jobs.conftest import sounds, transcript, translated
from topics.errors import EarshotError, Unavailable
from topics.jobs import payloads
from topics.jobs.options import Service
from topics.jobs.payloads import Caption, Insights, Segment
from topics.ports.speakers import SpeakerTurn

#: A recording, which the double of the prober does not read.
WAV = b"RIFF\x00\x00\x00\x00WAVEfmt " + bytes(1000)

#: What the services of a job find; text is an error.
Results = dict[Service, bytes | str]
TURN = Segment(500, 3_661_250, "Sit! \u2028 data: [good] dög", 0, "Unknown 0")
RESULTS: Results = {
    Service.SOUND: sounds("Dog_bark", "Dog_bark", ""),
    Service.SPEECH: transcript(TURN),
    Service.INSIGHTS: payloads.encode(Insights(False, "a yard", "A dog barks twice.", ("Dog_bark",))),
    Service.CAPTION: payloads.encode(Caption("A dog barks.")),
    Service.TRANSLATION: translated("Sitz!"),
}
FAULTY: Results = {**RESULTS, Service.SPEECH: "ASR Engine API error: 500"}
#: Turns of a recording of voices.
TURNS = (
    SpeakerTurn(30, 29_980, "Good [morning]\x1b[2J.", 0, "Anna_Kim", 0.731, known=True),
    SpeakerTurn(30_030, 59_980, "Hello.", 1, "Unknown 0", 0.058, known=False),
    SpeakerTurn(60_030, 89_980, "", 2, "Unknown 1", -1.0, known=False, unlabeled=True),
)

#: The ports raise an error, a proxy answers, the edge's answer is cut off after some lines, or bytes come for ever.
Fault = EarshotError | Response | int | bytes | None
BUSY = Unavailable("queues are full")
LOST = 0


class Edge:
    """The edges of all tests, one after the other."""

    url = ""

    def serve(self, house: House) -> None:
        """Serve another edge."""
        self.house = house
        #: What happens to each of the next requests.
        self.faults: deque[Fault] = deque()
        #: What services find in all jobs at the next request; without results, they do not run.
        self.results: Results = {}
        self.requests: list[Request] = []

    @property
    def asked(self) -> list[str]:
        """Return the requests as `POST voice`."""
        return [f"{request.method} {request.url.path.rpartition('/')[2]}" for request in self.requests]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.requests.append(Request(scope, receive))
        self._run_jobs()
        fault = self.faults.popleft() if self.faults else None
        if isinstance(fault, Response):
            await self.requests[-1].body()
            await fault(scope, receive, send)
        elif isinstance(fault, bytes):
            await self._trickle(fault, send)
        elif isinstance(fault, EarshotError):
            self._fail(fault)
            await self.house.app(scope, receive, send)
            self._fail(None)
        else:
            await self.house.app(scope, receive, send if fault is None else _cut(send, fault))

    async def _trickle(self, piece: bytes, send: Send) -> None:
        """Send an answer until the next edge is served, or not even its start if the piece is empty."""
        served = self.requests
        if piece:
            await send({"type": "http.response.start", "status": 200, "headers": []})
        while self.requests is served:
            await asyncio.sleep(0.02)
            if piece:
                await send({"type": "http.response.body", "body": piece, "more_body": True})

    def _run_jobs(self) -> None:
        jobs = self.house.jobs
        for job, view in [(job, jobs.view(job)) for job in jobs.jobs if self.results]:
            for service in () if view is None else view.accepted.options.services:
                found = self.results[service]
                portions, error = ([], found) if isinstance(found, str) else ([found], None)
                warnings = ("the engine has one language",)
                jobs.perform(job, service, *portions, error=error, audio_ms=TURN.end_ms, warnings=warnings)

    def _fail(self, error: EarshotError | None) -> None:
        self.house.sessions.failure = self.house.jobs.failure = self.house.speakers.failure = error


def _cut(send: Send, left: int) -> Send:
    """Return a `send` that cuts an answer off after some lines."""

    async def pass_on(message: Message) -> None:
        nonlocal left
        if left < 0:
            return
        if "body" in message:
            lines = message["body"].splitlines(keepends=True)[:left]
            left = left - sum(line.endswith(b"\n") for line in lines) or -1
            message = {**message, "body": b"".join(lines), "more_body": left > 0}
        await send(message)

    return pass_on
