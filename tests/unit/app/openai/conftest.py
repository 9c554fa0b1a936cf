"""Shared by tests of OpenAI's interface: requests as its clients send them, and jobs completed by hand."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import httpx2

from tests.unit.app.conftest import KEY, House, house
from tests.unit.app.jobs.conftest import TURNS, Exchange, transcript, translated
from tests.waiting import until
from topics.jobs.options import Service
from topics.jobs.payloads import Segment

__all__ = ["house"]

TRANSCRIPTIONS = "/v1/audio/transcriptions"
TRANSLATIONS = "/v1/audio/translations"
BOUNDARY = "boundary-of-a-client"
WHISPER = {"model": "whisper-1"}


def form(fields: Mapping[str, str | Sequence[str]], file: bytes | None = b"RIFF....") -> bytes:
    """Return a form as the public clients write it: a list becomes a field per value."""
    files = None if file is None else {"file": ("a.wav", file, "audio/wav")}
    kind = {"content-type": f"multipart/form-data; boundary={BOUNDARY}"}
    return httpx2.Request("POST", "http://here", data=dict(fields), files=files or {"": ""}, headers=kind).read()


class Post(Exchange):
    """A POST of a form, by a client that can hang up while it waits."""

    def __init__(self, house: House, path: str = TRANSCRIPTIONS, body: bytes | None = None, **headers: str) -> None:
        given = {
            "authorization": f"Bearer {KEY}",
            "content-type": f"multipart/form-data; boundary={BOUNDARY}",
            **headers,
        }
        super().__init__(house, path, "POST", form(WHISPER) if body is None else body, **given)

    @property
    def events(self) -> list[Any]:
        lines = self.body.decode().split("\n\n")
        return [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]


async def accepted(house: House) -> str:
    """Return the only job, once it is accepted."""
    await until(lambda: any(job.accepted is not None for job in house.jobs.jobs.values()))
    (job,) = house.jobs.jobs
    return job


async def answered(
    house: House,
    fields: Mapping[str, str | Sequence[str]],
    turns: Sequence[Segment] = TURNS,
    path: str = TRANSCRIPTIONS,
) -> Post:
    """Send a request, do its job, and return the exchange."""
    post = Post(house, path, form({**WHISPER, **fields}))
    job = await accepted(house)
    house.jobs.perform(job, Service.SPEECH, transcript(*turns), audio_ms=11_600)
    if path == TRANSLATIONS:
        house.jobs.perform(job, Service.TRANSLATION, translated(*(f"In English: {turn.text}" for turn in turns)))
    await post.end()
    return post
