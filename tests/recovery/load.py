"""Clients that stream across crashes, and record what was acknowledged."""

from __future__ import annotations

import asyncio
import base64
import json
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx2

from tests.process import ServiceProcess

#: 44.1 kHz, so that the output depends on the resampler too.
RATE = 44_100
CONTENT_TYPE = f"audio/x-raw; rate={RATE}; format=s16le"
CHUNK_BYTES = RATE  # 0.5 s of 16-bit mono
#: Longest pause between two chunks of a client, so that a run lasts for several kills.
PAUSE_SECONDS = 0.3


@dataclass
class Stream:
    session: str
    chunks: list[bytes] = field(default_factory=list)
    #: Acknowledgement time of each, monotonic.
    times: list[float] = field(default_factory=list)


def half_second(seed: int, number: int) -> bytes:
    generator = random.Random(f"{seed}-{number}")
    period = generator.randrange(20, 400)
    shape = bytes(generator.randrange(256) for _ in range(2 * period))
    return (shape * (CHUNK_BYTES // len(shape) + 1))[:CHUNK_BYTES]


class Client:
    """Repeats unanswered requests with an Idempotency-Key, as docs/sessions.md tells clients to."""

    def __init__(self, service: ServiceProcess, *others: ServiceProcess, give_up: float = 240, patience: float = 20):
        """Use `service`, and the next of `others` after `patience` seconds without an answer."""
        self.service = service
        self.give_up = give_up
        self.http = httpx2.AsyncClient(base_url=service.url, timeout=patience)
        self._nodes = (service, *others)
        #: Index of the node that is asked first.
        self.first = 0
        #: Number of repeated requests, and of acknowledged chunks.
        self.repeats = 0
        self.acknowledged = 0

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.http.aclose()

    async def ask(self, method: str, path: str, **more: object) -> httpx2.Response:
        """Repeat a request until the answer is neither a temporary refusal nor a broken connection."""
        last: object = None
        try:
            async with asyncio.timeout(self.give_up):
                while True:
                    url = self._nodes[(self.first + self.repeats) % len(self._nodes)].url
                    try:
                        answer = await self.http.request(method, url + path, **more)  # type: ignore[arg-type]
                    except httpx2.TransportError as error:
                        last = error
                    else:
                        # A service answers 500 if its database did not answer in time.
                        if answer.status_code != 503 and "key verification failed" not in answer.text:
                            return answer
                        last = answer.text
                    self.repeats += 1
                    await asyncio.sleep(0.1)
        except TimeoutError:
            raise AssertionError(f"{path}: not answered, last {last!r}; its log:\n{self.service.tail()}") from None

    async def open(self, kind: str = "stream") -> Stream:
        """Create a session with maximum sensitivity."""
        body = {"type": kind, "content_type": CONTENT_TYPE, "default_sensitivity": -2}
        answer = await self.ask("POST", "/audio_sessions/", json=body, headers={"X-Api-Key": self.service.key})
        assert answer.status_code == 200, answer.text
        return Stream(answer.json()["session_id"])

    async def put(self, stream: Stream, seed: int) -> None:
        """Upload the next chunk until it is acknowledged."""
        number = len(stream.chunks)
        data = half_second(seed, number)
        answer = await self.ask(
            "PUT",
            f"/audio_sessions/{stream.session}/chunks/{number}",
            json={"data": base64.b64encode(data).decode()},
            headers={"Idempotency-Key": f"{seed}-{number}"},
        )
        assert answer.status_code == 200, answer.text
        assert answer.json() == {"session_id": stream.session, "chunk_sequence": number + 1}
        stream.chunks.append(data)
        stream.times.append(time.monotonic())
        self.acknowledged += 1

    async def stream(self, seed: int, chunks: int) -> Stream:
        """Stream some chunks, repeating as needed, and seal."""
        stream = await self.open()
        pause = random.Random(seed)
        for _ in range(chunks):
            await self.put(stream, seed)
            await asyncio.sleep(pause.uniform(0, PAUSE_SECONDS))
        await self.seal(stream)
        return stream

    async def seal(self, stream: Stream) -> None:
        sealed = await self.ask("PATCH", f"/audio_sessions/{stream.session}", json={"make_readonly": True})
        assert sealed.status_code == 204, sealed.text

    async def status(self, session: str, **query: str) -> httpx2.Response:
        return await self.ask("GET", f"/audio_sessions/{session}/status", params=query)

    async def delete(self, session: str) -> None:
        """Delete a session; after a lost answer the next one may be 404."""
        repeats = self.repeats
        answer = await self.ask("DELETE", f"/audio_sessions/{session}")
        assert answer.status_code == 204 or (answer.status_code == 404 and self.repeats > repeats), answer.text

    async def job(self, audio: bytes, options: Mapping[str, bool], key: str | None = None) -> str:
        """Post a WAV until it is accepted; a `key` makes repeats one job. Return the job's id."""
        headers = {"X-Api-Key": self.service.key} | ({"Idempotency-Key": key} if key else {})
        form = {"options": (None, json.dumps(options)), "audio": ("a.wav", audio, "audio/x-wav")}
        answer = await self.ask("POST", "/api/v1/analyze_file", files=form, headers=headers)
        assert answer.status_code == 200, answer.text
        return str(answer.json()["job_id"])

    async def result(self, job: str) -> dict[str, Any]:
        """Return the result of an accepted job once it is completed."""
        while True:
            answer = await self.ask("GET", f"/api/v1/jobs/{job}", headers={"X-Api-Key": self.service.key})
            assert answer.status_code == 200, f"an accepted job is gone: {answer.text}"
            if answer.json()["status"] == "completed":
                result: dict[str, Any] = answer.json()["result"]
                return result
            await asyncio.sleep(0.2)

    async def listed(self, count: int) -> tuple[list[str], Any]:
        """Return the ids in the project's list, over pages of `count`, and what the last page reports as missing."""
        found: list[str] = []
        query = {"count": str(count)}
        while True:
            page = (
                await self.ask("GET", "/audio_sessions/", params=query, headers={"X-Api-Key": self.service.key})
            ).json()
            found += [entry["session_id"] for entry in page["sessions"]]
            if "next_token" not in page:
                return found, page.get("missing")
            query = {"next_token": page["next_token"]}

    async def events(self, session: str, count: int = 7) -> list[dict[str, Any]]:
        """Read every page of a session, following tokens."""
        found, query = [], {"count": str(count)}
        while True:
            answer = await self.status(session, **query)
            assert answer.status_code == 200, answer.text
            inference = answer.json()["inference"]
            found.extend(inference["results"])
            if (token := inference["page"].get("next_token")) is None:
                return found
            query = {"next_token": token}


async def kill_on_the_way(
    victim: ServiceProcess,
    work: asyncio.Future[Any],
    progress: Callable[[], int],
    total: int,
    kills: int,
    chance: random.Random,
) -> None:
    """Kill and restart a service `kills` times while `work` progresses to `total`; the last kill leaves some of it.

    Raises:
        AssertionError: The work ended before the last kill.
    """
    for number in range(kills):
        point = total * (number + chance.random()) / (kills + 1)
        while progress() < point and not work.done():  # noqa: ASYNC110 (it may be in a thread)
            await asyncio.sleep(0.01)
        # At any point between two acknowledgements.
        await asyncio.wait({work}, timeout=chance.uniform(0, 0.05))
        assert not work.done(), work
        await asyncio.to_thread(victim.kill)
        # Waiting for readiness could take too long: the remaining work would be done.
        victim.start(wait=0)
