"""Reads requests for jobs from their bodies: a JSON object, or a form."""

import asyncio
from functools import partial
from hashlib import blake2b

import msgspec

from app.http.call import Call
from app.http.multipart import NAME_CHARACTERS, Form
from app.http.uploads import UploadSpool
from app.jobs.job_context import JobContext
from app.jobs.json_body import read_content
from app.jobs.options import OPTIONS, AnalyzeFields, check_length, consistent_options, decoded, invalid
from topics import media
from topics.errors import BadRequest
from topics.jobs.options import Options
from topics.media import Media


class JobRequest(msgspec.Struct, frozen=True):
    """A request without its audio."""

    options: Options
    #: The content type that the client declares.
    declared: str
    #: That content type if it is raw PCM, which is trusted; None for containers, which are detected by content.
    media: Media | None
    filename: str

    def digest(self, audio: UploadSpool) -> bytes:
        """Return 16 bytes that distinguish this request from others."""
        content_type = self.declared if self.media is not None else ""
        content = msgspec.json.encode((self.options, content_type)) + audio.digest()
        return blake2b(content, digest_size=16).digest()


async def read_json(call: Call, context: JobContext, limit: int, audio: UploadSpool) -> JobRequest:
    """Read a JSON body of at most `limit` bytes, and write its recording to `audio`.

    Raises:
        Invalid, BadRequest: a field is missing or of another type, or the options are inconsistent.
        AudioError: the audio is not base64.
        TooLarge, RequestTimeout, ClientGone: the body cannot be read.
    """
    read = partial(read_content, interpret=_request_of_fields, audio=audio, limit=context.options.analyze_limit)
    async with audio.beside() as body:
        await context.uploads.receive(call, limit, body.write)
        async with context.decoding.place(audio.holder):
            return await asyncio.to_thread(read, body)


def _request_of_fields(fields: AnalyzeFields) -> JobRequest:
    options, content_type, samplerate = (
        consistent_options(fields.options),
        fields.content_type or "",
        int(fields.samplerate),
    )
    declared = media.parse(content_type, samplerate) if content_type else None
    if declared is not None and declared.container == "raw" and declared.rate != samplerate:
        raise BadRequest(f"samplerate is {samplerate}, but content_type says rate={declared.rate}: send one rate")
    return _job_request(options, content_type, declared, fields.filename or "")


async def read_form(call: Call, context: JobContext, limit: int, audio: UploadSpool) -> JobRequest:
    """Read a form of at most `limit` bytes, and write its recording to `audio`.

    Raises:
        Invalid, BadRequest: it is not a form, a part is missing, or the options are invalid.
        TooLarge, RequestTimeout, ClientGone: the body cannot be read.
    """
    form = Form(call.header(b"content-type"), "audio", audio.write, text="options")
    await context.uploads.receive(call, limit, form.feed)
    options = form.close()
    for part in ("options", "audio"):
        if part not in form.seen:
            raise invalid("missing", "required", part)
    check_length(options, "options")
    job_options = consistent_options(decoded(OPTIONS, options, "options"))
    # Clients name a part's type by guess, so only raw PCM, which nobody guesses, is read.
    declared = media.parse(form.content_type) if media.is_raw(form.content_type) else None
    return _job_request(job_options, form.content_type, declared, form.filename)


def _job_request(options: Options, content_type: str, declared: Media | None, filename: str) -> JobRequest:
    raw = declared if declared is not None and declared.container == "raw" else None
    return JobRequest(options, content_type if raw is None else raw.content_type, raw, filename[:NAME_CHARACTERS])
