"""The client for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self, TypeVar

import httpx2

from app.client import _flows, _jobs, _speakers
from app.client._client import TIMEOUT, answer, body, detection, lost, usable
from app.client._flows import Answer, Call, Flow, Lost, Pause
from app.client._following import Following
from app.client._models import NORMAL, Event, Opening, Page, Sensitivity, Session, Status
from app.client._profiles import ReEnrolled, SpeakerProfile, SpokenTurn
from app.client._results import USUAL, Captions, Job, JobEvent, Options, Result

T = TypeVar("T")


class AsyncClient:
    """`Client` for asyncio; the methods mean the same."""

    def __init__(
        self,
        url: str,
        key: str = "",
        *,
        org_key: str = "",
        transport: httpx2.AsyncBaseTransport | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._key = usable(key)
        self._org_key = usable(org_key)
        self._http = httpx2.AsyncClient(base_url=url, timeout=TIMEOUT, transport=transport)
        self._sleep = sleep

    async def create_session(self, opening: Opening) -> Session:
        return await self._run(_flows.create(self._key, opening))

    async def put_chunk(self, session: str, sequence: int, data: bytes) -> int:
        return await self._run(_flows.put_chunk(session, sequence, data))

    async def seal(self, session: str) -> None:
        await self._run(_flows.seal(session))

    async def delete(self, session: str) -> None:
        await self._run(_flows.delete(session))

    async def status(self, session: str, token: str | None = None) -> Status:
        return await self._run(_flows.read(session, token))

    def events(self, session: str) -> AsyncIterator[Event]:
        return self._iterate(_flows.follow(session))

    def detect(self, path: Path, sensitivity: Sensitivity = NORMAL) -> AsyncIterator[Event]:
        return self._iterate(detection(path, self._key, sensitivity))

    async def official_tags(self) -> tuple[str, ...]:
        return await self._run(_flows.official_tags())

    async def analyze_file(
        self,
        audio: Path | BinaryIO,
        options: Options = USUAL,
        *,
        name: str | None = None,
        content_type: str | None = None,
        idempotency_key: str | None = None,
    ) -> Job:
        with _jobs.opened(audio, name, content_type) as recording:
            return await self._run(_jobs.analyze(self._key, recording, options, idempotency_key))

    async def job(self, job: str) -> Job:
        return await self._run(_jobs.read(self._key, job))

    async def job_events(self, job: str, last_event_id: str | None = None) -> AsyncGenerator[JobEvent, None]:
        following = Following(job, last_event_id)
        while not following.ended():
            call = following.request()
            try:
                async with self._http.stream(call.method, call.path, headers=call.headers) as response:
                    if response.status_code == 200:
                        async for data in response.aiter_bytes():
                            for event in following.feed(data):
                                yield event
                            if following.ended():
                                return
                    else:
                        await response.aread()
                        following.refused(answer(response))
            except httpx2.TransportError as error:
                following.lost(lost(error).reason)
            await self._sleep(following.pause())

    async def result(self, job: str) -> Result:
        async for event in self.job_events(job):
            last = event
        return last.result

    async def delete_job(self, job: str) -> None:
        await self._run(_jobs.delete(self._key, job))

    async def captions(self, job: str, form: Captions) -> str:
        return await self._run(_jobs.captions(self._key, job, form))

    async def speakers(self) -> tuple[SpeakerProfile, ...]:
        return await self._run(_speakers.profiles(self._org_key))

    async def add_voice(self, speaker: str, file: Path | BinaryIO) -> SpeakerProfile:
        with _jobs.opened(file, None, None) as recording:
            return await self._run(_speakers.add_voice(self._org_key, speaker, recording))

    async def remove_speaker(self, speaker: str) -> None:
        await self._run(_speakers.remove(self._org_key, speaker))

    async def recognize(self, file: Path | BinaryIO) -> tuple[SpokenTurn, ...]:
        with _jobs.opened(file, None, None) as recording:
            return await self._run(_speakers.recognize(self._org_key, recording))

    async def re_enroll(self, speaker: str) -> ReEnrolled:
        return await self._run(_speakers.re_enroll(self._org_key, speaker))

    async def close(self) -> None:
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _run(self, flow: Flow[T]) -> T:
        came: Answer | Lost | None = None
        while True:
            try:
                step = flow.send(came)
            except StopIteration as stop:
                result: T = stop.value
                return result
            came = await self._perform(step)

    async def _iterate(self, flow: Flow[None]) -> AsyncIterator[Event]:
        came: Answer | Lost | None = None
        while True:
            try:
                step = flow.send(came)
            except StopIteration:
                return
            if isinstance(step, Page):
                for event in step.events:
                    yield event
            came = await self._perform(step)

    async def _perform(self, step: _flows.Step) -> Answer | Lost | None:
        if isinstance(step, Pause):
            await self._sleep(step.seconds)
        if not isinstance(step, Call):
            return None
        try:
            response = await self._http.request(
                step.method, step.path, headers=step.headers, params=step.query, **body(step)
            )
        except httpx2.TransportError as error:
            return lost(error)
        return answer(response)
