"""Flows of requests about speakers.

Every answer is an envelope `{data, error, debug}`. A broken rule has a success status, with the message in `error`.
"""

from typing import Final, TypeVar

import msgspec

from ._calls import Answer, Call, Flow, Upload, ask, sendable
from ._errors import SPEAKER_ERRORS, SpeakerRequestRefused, UnknownFormat
from ._json import decoded
from ._speaker_values import JobVoice, ReEnrollment, SpeakerProfile, SpeakerTurn
from ._uploads import Audio, opened, upload

T = TypeVar("T")

#: Only a busy service is retried: an unavailable engine has had its time already.
BUSY: Final = frozenset({503})


class _Envelope(msgspec.Struct, frozen=True):
    data: msgspec.Raw
    error: str = ""


class _Recognition(msgspec.Struct, frozen=True):
    transcription: tuple[SpeakerTurn, ...]


def profiles(key: str) -> Flow[tuple[SpeakerProfile, ...]]:
    answer = yield from ask(_call("GET", key, "speakers"), errors=SPEAKER_ERRORS, busy=BUSY)
    return _data(answer, tuple[SpeakerProfile, ...])


def add_voice(key: str, speaker: str, audio: Audio | JobVoice) -> Flow[SpeakerProfile]:
    """Add a voice sample. Like a new session, it is retried only if nothing was done: that might add it twice."""
    if isinstance(audio, JobVoice):
        fields = {
            "speaker": sendable(speaker),
            "job_id": sendable(audio.job_id),
            "job_speaker": sendable(audio.speaker),
        }
        headers = {"X-Org-Key": key, "Content-Type": "application/json"}
        call = Call("POST", "/api/v2/voice", msgspec.json.encode(fields), headers)
        answer = yield from ask(call, repeatable=False, errors=SPEAKER_ERRORS, busy=BUSY)
        return _data(answer, SpeakerProfile)
    with (yield from opened(audio)) as file:
        call = _upload_call(key, "voice", (yield from upload({"speaker": sendable(speaker)}, "file", file)))
        answer = yield from ask(call, repeatable=False, errors=SPEAKER_ERRORS, busy=BUSY)
    return _data(answer, SpeakerProfile)


def delete(key: str, speaker: str) -> Flow[None]:
    """Delete a speaker. It is never retried: a retry could not tell a lost answer from a wrong name."""
    call = _call("DELETE", key, "speaker", speaker=sendable(speaker))
    answer = yield from ask(call, repeatable=False, errors=SPEAKER_ERRORS, busy=frozenset())
    _data(answer, object)


def name(key: str, speaker: str, display_name: str | None) -> Flow[SpeakerProfile]:
    call = _call("PATCH", key, "speaker", speaker=sendable(speaker))
    text = None if display_name is None else sendable(display_name)
    call = msgspec.structs.replace(call, body=msgspec.json.encode({"display_name": text}))
    answer = yield from ask(call, errors=SPEAKER_ERRORS, busy=BUSY)
    return _data(answer, SpeakerProfile)


def recognize(key: str, audio: Audio) -> Flow[tuple[SpeakerTurn, ...]]:
    with (yield from opened(audio)) as file:
        call = _upload_call(key, "recognition", (yield from upload({}, "file", file)))
        answer = yield from ask(call, errors=SPEAKER_ERRORS, busy=BUSY)
    return _data(answer, _Recognition).transcription


def re_enroll(key: str, speaker: str) -> Flow[ReEnrollment]:
    """Enroll a speaker's samples again. A retry continues where the first try ended."""
    call = _call("POST", key, "speaker/re-enroll", speaker=sendable(speaker))
    answer = yield from ask(call, errors=SPEAKER_ERRORS, busy=BUSY)
    return _data(answer, ReEnrollment)


def _call(method: str, key: str, path: str, **query: str) -> Call:
    return Call(method, f"/api/v2/{path}", headers={"X-Org-Key": key}, query=query)


def _upload_call(key: str, path: str, body: Upload) -> Call:
    return Call("POST", f"/api/v2/{path}", headers={"X-Org-Key": key}, upload=body)


def _data(answer: Answer, kind: type[T]) -> T:
    envelope = decoded(answer.body, _Envelope)
    if envelope.error and answer.reason:
        raise UnknownFormat(answer.reason)
    if envelope.error:
        raise SpeakerRequestRefused(answer.status, envelope.error)
    return decoded(bytes(envelope.data), kind)
