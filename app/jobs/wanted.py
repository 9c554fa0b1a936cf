"""What a request for a job asks for, read from its body: a JSON object, or a form."""

from __future__ import annotations

import asyncio
import re
from concurrent.futures import ThreadPoolExecutor
from hashlib import blake2b
from typing import Final

import msgspec

from app.http.multipart import NAME_CHARACTERS, Form
from app.http.operation import Call
from app.http.uploads import Spool, receive
from app.jobs.content import read_content
from app.jobs.options import AnalyzeFields, agreed, invalid, parse, read_options
from topics import media
from topics.jobs.options import Options
from topics.media import Media

_RATE: Final = re.compile(r";\s*rate\s*=", re.IGNORECASE)
#: One body of JSON after the other is decoded: each needs memory for its whole recording.
_DECODING: Final = ThreadPoolExecutor(1, "analyze")


class Wanted(msgspec.Struct, frozen=True):
    """What a request asks for, besides its audio."""

    options: Options
    #: What the client says the audio is, and that read for raw PCM, which is believed.
    declared: str
    media: Media | None
    filename: str

    def digest(self, audio: Spool) -> bytes:
        """Return 16 bytes that tell this request from another one."""
        believed = self.declared if self.media is not None else ""
        content = msgspec.json.encode((self.options, believed)) + audio.digest()
        return blake2b(content, digest_size=16).digest()


async def from_json(call: Call, limit: int, audio: Spool) -> Wanted:
    """Read a JSON body of at most `limit` bytes, and write its recording to `audio`; errors as `read_content`."""
    most = call.edge.options.analyze_limit
    async with Spool(call.edge.options.spool) as body:
        await receive(call, limit, body.write)
        return await asyncio.get_running_loop().run_in_executor(_DECODING, read_content, body, _judged, audio, most)


def _judged(fields: AnalyzeFields) -> Wanted:
    return _wanted(agreed(fields.options), fields.content_type or "", fields.filename or "", fields.samplerate)


async def from_form(call: Call, limit: int, audio: Spool) -> Wanted:
    """Read a form of at most `limit` bytes, and write its recording to `audio`; errors as `Form` and `read_options`."""
    form = Form(call.header(b"content-type"), "audio", audio.write, text="options")
    await receive(call, limit, form.feed)
    options = form.close()
    for part in ("options", "audio"):
        if part not in form.seen:
            raise invalid("missing", "Field required", part)
    return _wanted(read_options(parse(options, "options")), form.content_type, form.filename)


def _wanted(options: Options, declared: str, filename: str, samplerate: int | None = None) -> Wanted:
    raw = declared.partition(";")[0].strip().lower() == media.RAW
    if raw and samplerate is not None and not _RATE.search(declared):
        declared = f"{declared}; rate={samplerate}"
    return Wanted(options, declared, media.parse(declared) if raw else None, filename[:NAME_CHARACTERS])
