"""Operations of the speaker interface: each belongs to the organization of its key, and knows no other.

The key is verified before anything else, then the form and the size of the request, the name, the file, and last what
the recording holds. Names of speakers are personal, and so none goes to the log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import structlog

from app.http.bodies import wait_for_disconnect
from app.http.call import Call
from app.http.errors import ClientGone
from app.http.queries import query_parameters
from app.http.replies import Reply
from app.speakers.context import SpeakerContext
from app.speakers.errors import RECOGNITION, REGISTRATION, recording_errors, success
from app.speakers.rendering import speaker_entry, transcription
from app.speakers.voice_form import VoiceForm, check_name

T = TypeVar("T")

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()


async def list_speakers(call: Call, context: SpeakerContext) -> Reply:
    """GET /api/v2/speakers: the organization's speakers."""
    organization = await context.organization_keys.authenticate(call)
    return success([speaker_entry(profile) for profile in await context.speakers.profiles(organization)])


async def register_voice(call: Call, context: SpeakerContext) -> Reply:
    """POST /api/v2/voice: a form with the parts `speaker` (a name) and `file` (a recording); others are ignored."""
    organization = await context.organization_keys.authenticate(call)
    with recording_errors(REGISTRATION):
        async with context.uploads.spool(organization) as audio:
            form = VoiceForm(call, audio, name="speaker")
            speaker = check_name(await form.read(context.uploads))
            form.check_file()
            profile = await context.speakers.register(organization, speaker, audio.fileno())
            size = audio.size
    context.meters.voice_registered()
    log.info("voice registered", organization=organization, size=size, samples=profile.samples)
    return success(speaker_entry(profile))


async def remove_speaker(call: Call, context: SpeakerContext) -> Reply:
    """DELETE /api/v2/speaker?speaker=NAME: the speaker with all their voice samples."""
    organization = await context.organization_keys.authenticate(call)
    speaker = _speaker_name(call)
    await context.speakers.remove(organization, speaker)
    log.info("speaker removed", organization=organization)
    return success({"speaker": speaker})


async def re_enroll_speaker(call: Call, context: SpeakerContext) -> Reply:
    """POST /api/v2/speaker/re-enroll?speaker=NAME: embed voices again that another model embedded, where kept."""
    organization = await context.organization_keys.authenticate(call)
    speaker = _speaker_name(call)
    with recording_errors(REGISTRATION):
        outcome = await context.speakers.re_enroll(organization, speaker)
    log.info("speaker re-enrolled", organization=organization, done=outcome.done, left=outcome.left)
    return success({"speaker": speaker, "done": outcome.done, "left": outcome.left})


async def recognize_speakers(call: Call, context: SpeakerContext) -> Reply:
    """POST /api/v2/recognition: a form with the part `file`; who of the organization's speakers speaks when."""
    organization = await context.organization_keys.authenticate(call)
    with recording_errors(RECOGNITION):
        async with context.uploads.spool(organization) as audio:
            form = VoiceForm(call, audio)
            await form.read(context.uploads)
            form.check_file()
            turns = await _while_connected(call, context.speakers.recognize(organization, audio.fileno()))
            size = audio.size
    context.meters.recognized()
    log.info("recording recognized", organization=organization, size=size, turns=len(turns))
    return success(transcription(turns, organization))


def _speaker_name(call: Call) -> str:
    return check_name(query_parameters(call.scope).get("speaker", ""))


async def _while_connected(call: Call, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of long work, which is cancelled when the client hangs up: it may soon ask again.

    Raises:
        ClientGone: the client hung up.
    """
    working, disconnect = asyncio.create_task(work), asyncio.create_task(wait_for_disconnect(call.receive))
    try:
        await asyncio.wait((working, disconnect), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientGone
        return working.result()
    finally:
        disconnect.cancel()
        working.cancel()
        await asyncio.gather(working, disconnect, return_exceptions=True)
