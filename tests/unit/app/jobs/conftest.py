"""Shared by tests of the job interface: an edge in process, and requests without a server."""

import asyncio
from collections.abc import Callable, MutableMapping
from typing import Any, Self

from tests.unit.app.conftest import House, house, http
from tests.unit.app.double import MODEL, STRONG, TAGS, WEAK
from topics.jobs import payloads
from topics.jobs.options import Options
from topics.jobs.payloads import Caption, Insights, Segment, Sounds, Transcript, Translated

__all__ = ["house", "http"]

ALL = Options(sound_event_detection=True, speech_analysis=True, audio_insights=True, caption=True, translation=True)
SOUND = Options(sound_event_detection=True)
BOTH = Options(sound_event_detection=True, speech_analysis=True)

TURNS = (
    Segment(4600, 8910, "Good morning.", 1, "Anna_Kim", 0.41239),
    Segment(9000, 11_500, "Guten Tag.", 0, "Unknown 0"),
)
INSIGHTS = Insights(True, "Kitchen", "Two people greet.", ("Dog_bark",), "English, German", "Greetings", ("hello",))


def sounds(*windows: str, first: int = 0) -> bytes:
    """Return a portion of windows, each given by its tags, strongest first: `"Siren Speech"`."""
    scores = bytearray()
    for window in windows:
        found = window.split()
        place = {tag: max(WEAK, STRONG - 5 * index) for index, tag in enumerate(found)}
        scores += bytes(place.get(tag, 0) for tag in TAGS)
    return payloads.encode(Sounds(first, MODEL, len(TAGS), bytes(scores)))


def transcript(*turns: Segment) -> bytes:
    return payloads.encode(Transcript(turns))


def translated(*texts: str) -> bytes:
    return payloads.encode(Translated("en", texts))


INSIGHTS_PORTION = payloads.encode(INSIGHTS)
CAPTION_PORTION = payloads.encode(Caption("Two people greet each other."))


class Exchange:
    """One GET to the ASGI application, by a client that can stop reading and hang up."""

    def __init__(self, house: House, path: str, method: str = "GET", **headers: str) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body = b""
        #: True once the answer is complete.
        self.whole = False
        self.hang_up = asyncio.Event()
        #: Cleared: the client stops reading.
        self.reading = asyncio.Event()
        self.reading.set()
        self._more = asyncio.Event()
        path, _, query = path.partition("?")
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "query_string": query.encode("ascii"),
            "headers": [(name.replace("_", "-").encode(), value.encode("latin-1")) for name, value in headers.items()],
        }
        self.task = asyncio.create_task(house.app(scope, self._receive, self._send))

    async def until(self, enough: Callable[[bytes], bool]) -> None:
        """Wait until the body is long enough."""
        async with asyncio.timeout(30):
            while not enough(self.body):
                await self._more.wait()
                self._more.clear()

    async def end(self) -> Self:
        """Wait for the end of the answer, complete or not."""
        async with asyncio.timeout(30):
            await self.task
        return self

    async def leave(self) -> None:
        self.hang_up.set()
        await self.end()

    async def _receive(self) -> MutableMapping[str, Any]:
        await self.hang_up.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: MutableMapping[str, Any]) -> None:
        await self.reading.wait()
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.decode(): value.decode("latin-1") for name, value in message["headers"]}
            assert len(self.headers) == len(message["headers"]), "a header appears twice"
            return
        self.body += message["body"]
        self.whole = not message.get("more_body", False)
        self._more.set()


def alone() -> bool:
    return asyncio.all_tasks() == {asyncio.current_task()}
