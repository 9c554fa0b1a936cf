"""Operations of the speaker interface: each belongs to the organization of its key, and knows no other.

The key is judged before anything else, then the form and the size of the request, the name, the file, and last what the
recording holds. Names of speakers are personal, and so none goes to the log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import structlog

from app.http.bodies import ClientGone, hung_up
from app.http.operation import Call
from app.http.queries import parameters
from app.http.replies import Reply
from app.http.uploads import Spool
from app.speakers.errors import RECOGNITION, REGISTRATION, enveloped, judged
from app.speakers.rendering import entry, transcription
from app.speakers.voice import Voice, check_name

T = TypeVar("T")

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()


async def list_speakers(call: Call) -> Reply:
    """GET /api/v2/speakers: the organization's speakers."""
    organization = await call.organization()
    return enveloped([entry(profile) for profile in await call.edge.speakers.profiles(organization)])


async def register_voice(call: Call) -> Reply:
    """POST /api/v2/voice: a form with the parts `speaker` (a name) and `file` (a recording); others are ignored."""
    organization = await call.organization()
    with judged(REGISTRATION):
        async with Spool(call.edge.options.spool) as audio:
            voice = Voice(call, audio, name="speaker")
            speaker = check_name(await voice.read())
            voice.check_file()
            profile = await call.edge.speakers.register(organization, speaker, audio.fileno())
            size = audio.size
    call.edge.meters.voice_registered()
    log.info("voice registered", organization=organization, size=size, samples=profile.samples)
    return enveloped(entry(profile))


async def remove_speaker(call: Call) -> Reply:
    """DELETE /api/v2/speaker?speaker=NAME: the speaker with all their voice samples."""
    organization = await call.organization()
    speaker = _named(call)
    await call.edge.speakers.remove(organization, speaker)
    log.info("speaker removed", organization=organization)
    return enveloped({"speaker": speaker})


async def re_enroll_speaker(call: Call) -> Reply:
    """POST /api/v2/speaker/re-enroll?speaker=NAME: embed voices again that another model embedded, where kept."""
    organization = await call.organization()
    speaker = _named(call)
    with judged(REGISTRATION):
        outcome = await call.edge.speakers.re_enroll(organization, speaker)
    log.info("speaker re-enrolled", organization=organization, done=outcome.done, left=outcome.left)
    return enveloped({"speaker": speaker, "done": outcome.done, "left": outcome.left})


async def recognize_speakers(call: Call) -> Reply:
    """POST /api/v2/recognition: a form with the part `file`; who of the organization's speakers speaks when."""
    organization = await call.organization()
    with judged(RECOGNITION):
        async with Spool(call.edge.options.spool) as audio:
            voice = Voice(call, audio)
            await voice.read()
            voice.check_file()
            turns = await _attended(call, call.edge.speakers.recognize(organization, audio.fileno()))
            size = audio.size
    call.edge.meters.recognized()
    log.info("recording recognized", organization=organization, size=size, turns=len(turns))
    return enveloped(transcription(turns, organization))


def _named(call: Call) -> str:
    return check_name(parameters(call.scope).get("speaker", ""))


async def _attended(call: Call, work: Coroutine[Any, Any, T]) -> T:
    """Return what long work comes to; it is cancelled when the client hangs up, who may soon ask again.

    Raises:
        ClientGone: the client hung up.
    """
    working, gone = asyncio.create_task(work), asyncio.create_task(hung_up(call.receive))
    try:
        await asyncio.wait((working, gone), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientGone
        return working.result()
    finally:
        gone.cancel()
        working.cancel()
        await asyncio.gather(working, gone, return_exceptions=True)
