"""The operations of the speaker interface, as the documents describe them."""

from collections.abc import Mapping
from typing import Annotated, Any, Final

import msgspec

from app.http.bodies import decode
from app.http.descriptions import Body, Description, Fault, Form, Parameter, Part, fault_of, json_answer, json_body
from app.http.multipart import MAX_PARTS
from app.http.operation import Handler
from app.shared_descriptions import BROKEN, ORGANIZATION_KEY, SLOW
from app.speakers import operations, passages
from app.speakers.answers import (
    NamedSpeaker,
    RecognisedTurn,
    Recognition,
    ReEnrolledSpeaker,
    ReEnrolment,
    RegisteredVoice,
    RemovedSpeaker,
    SpeakerEntry,
    SpeakerList,
    SpeakerRemoval,
    Transcription,
)
from app.speakers.errors import RECOGNITION, REGISTRATION, TOO_LONG, recording_errors
from app.speakers.passages import PASSAGE, PassageRequest
from app.speakers.voice_form import (
    EMPTY_FILE,
    NAME,
    NAME_CHARACTERS,
    NAMING,
    NO_FILE,
    TOO_LARGE,
    VOICE_BYTES,
    SpeakerNaming,
    check_display_name,
    check_name,
)
from topics.errors import AudioError, BadRequest, EngineAway, RuleBroken
from topics.ports.speakers import MAX_SAMPLES, MAX_SPEAKERS, speaker_not_found, too_many_samples, too_many_speakers

KIM: Final = SpeakerEntry("Kim", "2026-11-22T06:51:02.117Z", 8.14, 1, True)
TURN: Final = RecognisedTurn(
    idx=0,
    transcript="i really liked that account of himself",
    confidence=0,
    first_word_start_msec=530,
    first_word_start_time="00:00.53",
    last_word_end_msec=4700,
    last_word_end_time="00:04.70",
    speaker_tag=0,
    speaker_name="Kim",
    speaker_score=0.7812,
    speaker_is_unlabeled=False,
    org_pub_id="1f3a9c2e",
)
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
RULES: Final = "A broken rule is answered 200, with the rule in `error` and null in `data`."

OPERATIONS: Final[Mapping[Handler[Any], Description]] = {
    operations.list_speakers: Description(
        summary="List the speakers",
        text="By name, for the organization of the key.",
        origin="public-clients",
        key=ORGANIZATION_KEY,
        answers=json_answer("The speakers.", one=SpeakerList([KIM], "", "")),
        faults=BROKEN,
    ),
    operations.register_voice: Description(
        summary="Register a voice",
        text=f"Adds a voice sample to a speaker; the first one creates the speaker. At most {MAX_SPEAKERS} speakers "
        f"per organization and {MAX_SAMPLES} samples per speaker. The voice is a recording or, in JSON, the "
        f"`job_speaker` in the transcript of a job whose audio is kept (`EARSHOT_JOB_AUDIO_SECONDS`). {RULES} If the "
        "audio cannot be read, `Earshot-Reason` says why.",
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
        faults=(
            fault_of(check_name, "Kim!"),
            *RECORDING_FAULTS,
            *PASSAGE_FAULTS,
            too_many_speakers(),
            too_many_samples(),
            EngineAway(REGISTRATION),
        ),
    ),
    operations.remove_speaker: Description(
        summary="Remove a speaker",
        text=f"With all voice samples. {RULES}",
        origin="public-clients",
        key=ORGANIZATION_KEY,
        parameters=(NAMED,),
        answers=json_answer("Removed.", kim=SpeakerRemoval(RemovedSpeaker("Kim"), "", "")),
        faults=(NO_SPEAKER, *BROKEN),
    ),
    operations.name_speaker: Description(
        summary="Set the display name of a speaker",
        text="What people call the speaker, with any letters and spaces: lists and new transcripts of jobs show it. "
        f"Requests and recognition keep the name. {RULES}",
        key=ORGANIZATION_KEY,
        parameters=(NAMED,),
        bodies=json_body(kim=SpeakerNaming("Kim Müller"), none=SpeakerNaming(None)),
        answers=json_answer(
            "The speaker.", kim=NamedSpeaker(msgspec.structs.replace(KIM, display_name="Kim Müller"), "", "")
        ),
        faults=(fault_of(check_display_name, " Kim"), fault_of(decode, NAMING, b"[]"), NO_SPEAKER, *BROKEN),
    ),
    operations.re_enroll_speaker: Description(
        summary="Embed a speaker's voices again",
        text=f"Voices that another model embedded, if the deployment keeps recordings (`EARSHOT_KEEP_VOICE`). {RULES}",
        key=ORGANIZATION_KEY,
        parameters=(NAMED,),
        answers=json_answer("Done.", kim=ReEnrolment(ReEnrolledSpeaker("Kim", 1, 0), "", "")),
        faults=(NO_SPEAKER, EngineAway(REGISTRATION), *BROKEN),
    ),
    operations.recognize_speakers: Description(
        summary="Recognise speakers",
        text="Which speakers of the organization speak when. The answer waits for the analysis: up to a minute for "
        f"ten minutes of audio. {RULES}",
        origin="public-clients",
        key=ORGANIZATION_KEY,
        bodies=(Form({"file": FILE}, {"meeting": {"file": "meeting.ogg"}}),),
        answers=json_answer("The turns.", meeting=Recognition(Transcription([TURN]), "", "")),
        faults=(*RECORDING_FAULTS, EngineAway(RECOGNITION)),
    ),
}
