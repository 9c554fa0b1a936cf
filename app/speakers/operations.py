"""Operations of the speaker interface: each is confined to the organization of its key.

The checks run in this order: the key, the form and size of the request, the name, the file, and finally the content of
the recording. Names of speakers are personal data, so none is logged.
"""

import structlog

from app.cluster.forwarding import FORWARDED
from app.http.bodies import SMALL_BODY, decode, while_connected
from app.http.call import Call
from app.http.metrics import RECOGNITIONS, VOICES
from app.http.queries import query_parameters
from app.http.replies import Reply, StreamReply
from app.speakers.answers import (
    NamedSpeaker,
    Recognition,
    ReEnrolledSpeaker,
    ReEnrolment,
    RegisteredVoice,
    RemovedSpeaker,
    SpeakerList,
    SpeakerRemoval,
)
from app.speakers.errors import RECOGNITION, REGISTRATION, recording_errors, success
from app.speakers.passages import PASSAGE, check_id, find_passage
from app.speakers.rendering import speaker_entry, transcription
from app.speakers.speaker_context import SpeakerContext
from app.speakers.voice_form import NAMING, VoiceForm, check_display_name, check_name
from topics import keys
from topics.turns import Holder

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()


async def list_speakers(call: Call, context: SpeakerContext) -> Reply:
    """GET /api/v2/speakers: the organization's speakers."""
    organization = await context.organization_keys.authenticate(call)
    return success(SpeakerList, [speaker_entry(profile) for profile in await context.speakers.profiles(organization)])


async def register_voice(call: Call, context: SpeakerContext) -> Reply | StreamReply:
    """POST /api/v2/voice: a form with the parts `speaker` (a name) and `file` (a recording); others are ignored.

    As our extension, a JSON object has `speaker`, and `job_id` and `job_speaker` in place of the file: the label of the
    speaker in the transcript of one of the organization's jobs.
    """
    organization = await context.organization_keys.authenticate(call)
    if call.header(b"content-type").partition(b";")[0].strip().lower() == b"application/json":
        body = await call.body(SMALL_BODY, Holder(organization, ""))
        return await while_connected(call.receive, _register_passage(call, context, organization, body))
    with recording_errors(REGISTRATION):
        async with context.uploads.spool(Holder(organization, "")) as audio:
            form = VoiceForm(call, audio, name="speaker")
            speaker = check_name(await form.read(context.uploads))
            form.check_file()
            registration = context.speakers.register(organization, speaker, audio.fileno())
            profile = await while_connected(call.receive, registration)
            size = audio.size
    context.meters.add(VOICES)
    log.info("voice registered", organization=organization, size=size, samples=profile.samples)
    return success(RegisteredVoice, speaker_entry(profile))


async def _register_passage(call: Call, context: SpeakerContext, organization: str, body: bytes) -> Reply | StreamReply:
    request = decode(PASSAGE, body)
    speaker = check_name(request.speaker)
    check_id(request)
    owner = context.jobs.owner(request.job_id)
    if owner is not None and not call.header(FORWARDED):
        return await context.forwarder.forward(call.scope, owner, body, patient=True)
    passage = await find_passage(context.jobs, context.turns, organization, request)
    with recording_errors(REGISTRATION):
        async with context.jobs.recording(request.job_id) as file:
            profile = await context.speakers.register_passage(
                organization, speaker, file, passage.content_type, passage.spans
            )
    context.meters.add(VOICES)
    log.info("voice registered", organization=organization, job=keys.shown(request.job_id), samples=profile.samples)
    return success(RegisteredVoice, speaker_entry(profile))


async def remove_speaker(call: Call, context: SpeakerContext) -> Reply:
    """DELETE /api/v2/speaker?speaker=NAME: the speaker with all their voice samples."""
    organization = await context.organization_keys.authenticate(call)
    speaker = _speaker_name(call)
    await context.speakers.remove(organization, speaker)
    log.info("speaker removed", organization=organization)
    return success(SpeakerRemoval, RemovedSpeaker(speaker))


async def name_speaker(call: Call, context: SpeakerContext) -> Reply:
    """PATCH /api/v2/speaker?speaker=NAME: set what people call the speaker, in lists and new transcripts of jobs."""
    organization = await context.organization_keys.authenticate(call)
    speaker = _speaker_name(call)
    shown = check_display_name(decode(NAMING, await call.body(SMALL_BODY, Holder(organization, ""))).display_name)
    profile = await context.speakers.name(organization, speaker, shown)
    log.info("speaker named", organization=organization)
    return success(NamedSpeaker, speaker_entry(profile))


async def re_enroll_speaker(call: Call, context: SpeakerContext) -> Reply:
    """POST /api/v2/speaker/re-enroll?speaker=NAME: embed stored voices of another model again."""
    organization = await context.organization_keys.authenticate(call)
    speaker = _speaker_name(call)
    with recording_errors(REGISTRATION):
        outcome = await context.speakers.re_enroll(organization, speaker)
    log.info("speaker re-enrolled", organization=organization, done=outcome.done, left=outcome.left)
    return success(ReEnrolment, ReEnrolledSpeaker(speaker, outcome.done, outcome.left))


async def recognize_speakers(call: Call, context: SpeakerContext) -> Reply:
    """POST /api/v2/recognition: a form with the part `file`; reports which speakers of the organization speak when."""
    organization = await context.organization_keys.authenticate(call)
    with recording_errors(RECOGNITION):
        async with context.uploads.spool(Holder(organization, "")) as audio:
            form = VoiceForm(call, audio)
            await form.read(context.uploads)
            form.check_file()
            turns = await while_connected(call.receive, context.speakers.recognize(organization, audio.fileno()))
            size = audio.size
    context.meters.add(RECOGNITIONS)
    log.info("recording recognized", organization=organization, size=size, turns=len(turns))
    return success(Recognition, transcription(turns, organization))


def _speaker_name(call: Call) -> str:
    return check_name(query_parameters(call.scope).get("speaker", ""))
