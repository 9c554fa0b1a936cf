"""What is asked of the service about speakers, as flows (`app.client._flows`).

Every answer is an envelope `{data, error, debug}`; a broken rule has the status of a success, and words in `error`.
"""

from __future__ import annotations

from typing import Final, TypeVar

import msgspec

from app.client._errors import BY_SPEAKER_STATUS, SpeakerRefused
from app.client._flows import Answer, Call, Flow, Upload, ask, sendable
from app.client._jobs import Recording
from app.client._json import decoded
from app.client._profiles import ReEnrolled, SpeakerProfile, SpokenTurn

T = TypeVar("T")

#: Asked again only while the service is busy: where an engine is away, it had its time already.
BUSY: Final = frozenset({503})


class _Envelope(msgspec.Struct, frozen=True):
    data: msgspec.Raw
    error: str = ""


class _Recognition(msgspec.Struct, frozen=True):
    transcription: tuple[SpokenTurn, ...]


def profiles(key: str) -> Flow[tuple[SpeakerProfile, ...]]:
    """List the speakers of the organization."""
    answer = yield from ask(_call("GET", key, "speakers"), kinds=BY_SPEAKER_STATUS, busy=BUSY)
    return _opened(answer, tuple[SpeakerProfile, ...])


def add_voice(key: str, speaker: str, recording: Recording) -> Flow[SpeakerProfile]:
    """Upload a voice sample. Without an answer it is not tried again: that might add it twice."""
    call = _upload(key, "voice", {"speaker": sendable(speaker)}, recording)
    answer = yield from ask(call, again=False, kinds=BY_SPEAKER_STATUS, busy=BUSY)
    return _opened(answer, SpeakerProfile)


def remove(key: str, speaker: str) -> Flow[None]:
    """Delete a speaker. It is never tried again: a second try would find nobody, and could not tell why."""
    call = _call("DELETE", key, "speaker", speaker=sendable(speaker))
    answer = yield from ask(call, again=False, kinds=BY_SPEAKER_STATUS, busy=frozenset())
    _opened(answer, object)


def recognize(key: str, recording: Recording) -> Flow[tuple[SpokenTurn, ...]]:
    """Upload a recording and return its turns."""
    answer = yield from ask(_upload(key, "recognition", {}, recording), kinds=BY_SPEAKER_STATUS, busy=BUSY)
    return _opened(answer, _Recognition).transcription


def re_enroll(key: str, speaker: str) -> Flow[ReEnrolled]:
    """Have a speaker's samples learnt again; what is done already stays done."""
    call = _call("POST", key, "speaker/re-enroll", speaker=sendable(speaker))
    answer = yield from ask(call, kinds=BY_SPEAKER_STATUS, busy=BUSY)
    return _opened(answer, ReEnrolled)


def _call(method: str, key: str, path: str, **query: str) -> Call:
    return Call(method, f"/api/v2/{path}", headers={"X-Org-Key": key}, query=query)


def _upload(key: str, path: str, fields: dict[str, str], recording: Recording) -> Call:
    upload = Upload(fields, "file", recording.name, recording.content_type, recording.file)
    return Call("POST", f"/api/v2/{path}", headers={"X-Org-Key": key}, upload=upload)


def _opened(answer: Answer, kind: type[T]) -> T:
    envelope = decoded(answer.body, _Envelope)
    if envelope.error:
        raise SpeakerRefused(answer.status, envelope.error)
    return decoded(bytes(envelope.data), kind)
