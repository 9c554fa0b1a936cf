"""Operations of the speaker interface: each is confined to the organization of its key.

The checks run in this order: the key, the form and size of the request, the name, the file, and finally the content of
the recording. Names of speakers are personal data, so none is logged.
"""

from typing import Annotated, Final

import msgspec
import structlog

from app.cluster.forwarding import Forwarder
from app.cluster.takeovers import Takeovers
from app.http.bodies import SMALL_BODY, decode, while_connected
from app.http.call import Call
from app.http.descriptions import Body, Fault, Form, Parameter, Part, fault_of, json_answer, json_body, operation
from app.http.metrics import RECOGNITIONS, VOICES, Meters
from app.http.multipart import MAX_PARTS
from app.http.queries import query_parameters
from app.http.replies import Reply, StreamReply
from app.http.turns import LoopTurns
from app.http.uploads import Uploads
from app.identity.authentication import Authenticator
from app.shared_descriptions import BROKEN, ORGANIZATION_KEY, SLOW
from app.speakers import passages
from app.speakers.answers import (
    KIM,
    TURN,
    NamedSpeaker,
    Recognition,
    ReEnrolledSpeaker,
    ReEnrolment,
    RegisteredVoice,
    RemovedSpeaker,
    SpeakerList,
    SpeakerRemoval,
    Transcription,
)
from app.speakers.errors import RECOGNITION, REGISTRATION, TOO_LONG, recording_errors, success
from app.speakers.passages import PASSAGE, PassageRequest, check_id, find_passage
from app.speakers.rendering import speaker_entry, transcription
from app.speakers.voice_form import (
    EMPTY_FILE,
    NAME,
    NAME_CHARACTERS,
    NAMING,
    NO_FILE,
    TOO_LARGE,
    VOICE_BYTES,
    SpeakerNaming,
    VoiceForm,
    check_display_name,
    check_name,
)
from topics import keys
from topics.errors import AudioError, BadRequest, EngineAway, RuleBroken
from topics.ports.jobs import Jobs
from topics.ports.speakers import (
    MAX_SAMPLES,
    MAX_SPEAKERS,
    Speakers,
    speaker_not_found,
    too_many_samples,
    too_many_speakers,
)
from topics.turns import Holder

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=NAME_CHARACTERS, pattern=rf"^{NAME.pattern}$")]
NAMED: Final = Parameter("speaker", "query", Name, "Name of the speaker.", required=True, example="Kim")
FILE: Final = Part(bytes, f"A recording of at most {VOICE_BYTES // 2**20} MB and ten minutes, in any container.")
NO_SPEAKER: Final = speaker_not_found()


def _unreadable() -> None:
    with recording_errors(REGISTRATION):
        raise AudioError("the audio is damaged")


#: Faults of a request with a recording.
RECORDING_FAULTS: Final[tuple[Fault, ...]] = (
    RuleBroken(NO_FILE),
    RuleBroken(EMPTY_FILE),
    RuleBroken(TOO_LARGE),
    RuleBroken(TOO_LONG),
    fault_of(_unreadable),
    BadRequest(f"the multipart form has more than {MAX_PARTS} parts"),
    SLOW,
    *BROKEN,
)
#: Faults of a request that names a voice in a job.
PASSAGE_FAULTS: Final[tuple[Fault, ...]] = (
    RuleBroken(passages.NO_JOB),
    RuleBroken(passages.NOT_ENDED),
    RuleBroken(passages.NOT_KEPT),
    RuleBroken(passages.NO_TRANSCRIPT),
    RuleBroken(passages.NO_SUCH_VOICE),
    RuleBroken(passages.TOO_LITTLE),
    fault_of(decode, PASSAGE, b"[]"),
)
MOST: Final = f"{MAX_SPEAKERS} speakers per organization and {MAX_SAMPLES} samples per speaker"
RULES: Final = "A broken rule is answered 200, with the rule in `error` and null in `data`."


class SpeakerContext(msgspec.Struct, frozen=True):
    """The speakers of organizations; an organization key gives access to one of them."""

    speakers: Speakers
    #: The jobs whose transcripts contain voices to register, and the forwarder to the nodes that own them.
    jobs: Jobs
    forwarder: Forwarder
    takeovers: Takeovers
    organization_keys: Authenticator[str]
    meters: Meters
    uploads: Uploads
    turns: LoopTurns


@operation(
    "GET /speakers",
    origin="public-clients",
    key=ORGANIZATION_KEY,
    answers=json_answer("The speakers.", one=SpeakerList([KIM], "", "")),
    faults=BROKEN,
)
async def list_speakers(call: Call, context: SpeakerContext) -> Reply:
    """List the speakers.

    By name, for the organization of the key.
    """
    organization = await context.organization_keys.authenticate(call)
    return success(SpeakerList, [speaker_entry(profile) for profile in await context.speakers.profiles(organization)])


@operation(
    "POST /voice",
    origin="public-clients",
    key=ORGANIZATION_KEY,
    bodies=(
        Form(
            {"speaker": Part(Name, "Name of the speaker."), "file": FILE},
            {"kim": {"speaker": "Kim", "file": "kim.ogg"}},
        ),
        Body(PassageRequest, {"pointed-at": PassageRequest("Kim", "4bG4kCD3jAgwG3rLuU1AvCkY", "SPEAKER_01")}),
    ),
    answers=json_answer("The speaker.", kim=RegisteredVoice(KIM, "", "")),
    faults=lambda: (
        fault_of(check_name, "Kim!"),
        *RECORDING_FAULTS,
        *PASSAGE_FAULTS,
        too_many_speakers(),
        too_many_samples(),
        EngineAway(REGISTRATION),
    ),
)
async def register_voice(call: Call, context: SpeakerContext) -> Reply | StreamReply:
    """Register a voice.

    Adds a voice sample to a speaker; the first one creates the speaker. At most {MOST}. The voice is a
    recording or, in JSON, the `job_speaker` in the transcript of a job whose audio is kept
    (`EARSHOT_JOB_AUDIO_SECONDS`). {RULES} If the audio cannot be read, `Earshot-Reason` says why.
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

    async def forward(owner: str) -> Reply | StreamReply:
        return await context.forwarder.forward(call.scope, owner, body, patient=True)

    if (reply := await context.takeovers.ask(call, context.jobs, request.job_id, forward)) is not None:
        return reply
    passage = await find_passage(context.jobs, context.turns, organization, request)
    with recording_errors(REGISTRATION):
        async with context.jobs.recording(request.job_id) as file:
            profile = await context.speakers.register_passage(
                organization, speaker, file, passage.content_type, passage.spans
            )
    context.meters.add(VOICES)
    log.info("voice registered", organization=organization, job=keys.shown(request.job_id), samples=profile.samples)
    return success(RegisteredVoice, speaker_entry(profile))


@operation(
    "DELETE /speaker",
    origin="public-clients",
    key=ORGANIZATION_KEY,
    parameters=(NAMED,),
    answers=json_answer("Removed.", kim=SpeakerRemoval(RemovedSpeaker("Kim"), "", "")),
    faults=(NO_SPEAKER, *BROKEN),
)
async def remove_speaker(call: Call, context: SpeakerContext) -> Reply:
    """Remove a speaker.

    With all voice samples. {RULES}
    """
    organization = await context.organization_keys.authenticate(call)
    speaker = _speaker_name(call)
    await context.speakers.remove(organization, speaker)
    log.info("speaker removed", organization=organization)
    return success(SpeakerRemoval, RemovedSpeaker(speaker))


@operation(
    "PATCH /speaker",
    key=ORGANIZATION_KEY,
    parameters=(NAMED,),
    bodies=json_body(kim=SpeakerNaming("Kim Müller"), none=SpeakerNaming(None)),
    answers=json_answer(
        "The speaker.", kim=NamedSpeaker(msgspec.structs.replace(KIM, display_name="Kim Müller"), "", "")
    ),
    faults=lambda: (fault_of(check_display_name, " Kim"), fault_of(decode, NAMING, b"[]"), NO_SPEAKER, *BROKEN),
)
async def name_speaker(call: Call, context: SpeakerContext) -> Reply:
    """Set the display name of a speaker.

    What people call the speaker, with any letters and spaces: lists and new transcripts of jobs show it. Requests and
    recognition keep the name. {RULES}
    """
    organization = await context.organization_keys.authenticate(call)
    speaker = _speaker_name(call)
    shown = check_display_name(decode(NAMING, await call.body(SMALL_BODY, Holder(organization, ""))).display_name)
    profile = await context.speakers.name(organization, speaker, shown)
    log.info("speaker named", organization=organization)
    return success(NamedSpeaker, speaker_entry(profile))


@operation(
    "POST /speaker/re-enroll",
    key=ORGANIZATION_KEY,
    parameters=(NAMED,),
    answers=json_answer("Done.", kim=ReEnrolment(ReEnrolledSpeaker("Kim", 1, 0), "", "")),
    faults=(NO_SPEAKER, EngineAway(REGISTRATION), *BROKEN),
)
async def re_enroll_speaker(call: Call, context: SpeakerContext) -> Reply:
    """Embed a speaker's voices again.

    Voices that another model embedded, if the deployment keeps recordings (`EARSHOT_KEEP_VOICE`). {RULES}
    """
    organization = await context.organization_keys.authenticate(call)
    speaker = _speaker_name(call)
    with recording_errors(REGISTRATION):
        outcome = await context.speakers.re_enroll(organization, speaker)
    log.info("speaker re-enrolled", organization=organization, done=outcome.done, left=outcome.left)
    return success(ReEnrolment, ReEnrolledSpeaker(speaker, outcome.done, outcome.left))


@operation(
    "POST /recognition",
    origin="public-clients",
    key=ORGANIZATION_KEY,
    bodies=(Form({"file": FILE}, {"meeting": {"file": "meeting.ogg"}}),),
    answers=json_answer("The turns.", meeting=Recognition(Transcription([TURN]), "", "")),
    faults=(*RECORDING_FAULTS, EngineAway(RECOGNITION)),
)
async def recognize_speakers(call: Call, context: SpeakerContext) -> Reply:
    """Recognise speakers.

    Which speakers of the organization speak when. The answer waits for the analysis: up to a minute for ten minutes of
    audio. {RULES}
    """
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
