"""Finds where a speaker of a job's transcript speaks alone."""

import re
from collections.abc import Iterable, Sequence
from contextlib import aclosing
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from app.http.turns import LoopTurns, holder_of
from topics.errors import RuleBroken
from topics.jobs import payloads
from topics.jobs.options import Service
from topics.jobs.rules import EntryState, JobState
from topics.keys import is_id
from topics.ports.jobs import Jobs

#: Longest audio to learn a voice from, milliseconds; more adds next to nothing.
LONGEST_MS: Final = 120_000
#: A shorter stretch is mostly its edges, which may contain another voice.
SHORTEST_MS: Final = 300

NO_JOB: Final = "job not found"
NOT_ENDED: Final = "the job has not ended yet"
NO_TRANSCRIPT: Final = "the job has no transcript"
NOT_KEPT: Final = (
    "the audio of the job was not kept: before it is sent, set keep_audio_seconds of the project "
    "or EARSHOT_JOB_AUDIO_SECONDS"
)
NO_SUCH_VOICE: Final = "the transcript of the job has no such speaker"
TOO_LITTLE: Final = "the speaker says too little in the job"

_LABEL: Final = re.compile(r"SPEAKER_([0-9]{2,6})")
#: Begin and end, milliseconds.
Span = tuple[int, int]


class PassageRequest(msgspec.Struct, frozen=True):
    """A speaker to register, by their voice in a job."""

    speaker: Annotated[str, Meta(description="Name of the speaker.")]
    job_id: Annotated[str, Meta(description="A job of the organization, whose audio is kept.")]
    job_speaker: Annotated[str, Meta(description="The speaker's label in the transcript: `SPEAKER_01`.")]


class Passage(msgspec.Struct, frozen=True):
    """Stretches of a job's recording, in order, and the kind of recording."""

    content_type: str
    spans: tuple[Span, ...]


PASSAGE: Final = msgspec.json.Decoder(PassageRequest)


def check_id(request: PassageRequest) -> None:
    """Raise RuleBroken if the job's id is malformed."""
    if not is_id(request.job_id):
        raise RuleBroken(NO_JOB)


async def find_passage(jobs: Jobs, turns: LoopTurns, organization: str, request: PassageRequest) -> Passage:
    """Return where a speaker of a job speaks alone, the longest turns first until there is enough.

    Raises:
        RuleBroken: the organization has no such job, it is not done, has no transcript or no such speaker, the speaker
            is never alone, or the audio was not kept.
        Unavailable: the job is on another node.
    """
    view = jobs.view(request.job_id)
    if view is None or view.accepted.organization != organization:
        raise RuleBroken(NO_JOB)
    if view.head.state is not JobState.COMPLETED:
        raise RuleBroken(NOT_ENDED)
    if not view.head.keeps_audio:
        raise RuleBroken(NOT_KEPT)
    entry = view.head.entry(Service.SPEECH)
    if entry is None or entry.state is not EntryState.SUCCESS:
        raise RuleBroken(NO_TRANSCRIPT)
    label = _LABEL.fullmatch(request.job_speaker)
    own: list[Span] = []
    others: list[Span] = []
    portions = (jobs.portion(request.job_id, Service.SPEECH, number) for number in range(entry.portions))
    transcripts = (payloads.transcript(data) for data in portions if data is not None)
    async with aclosing(turns.each(holder_of(view.accepted, request.job_id), transcripts)) as reading:
        async for transcript in reading:
            for turn in transcript.segments:
                theirs = label is not None and turn.speaker == int(label[1])
                (own if theirs else others).append((turn.start_ms, turn.end_ms))
    if not own:
        raise RuleBroken(NO_SUCH_VOICE)
    spans = longest(alone(own, others))
    if not spans:
        raise RuleBroken(TOO_LITTLE)
    return Passage(view.accepted.source.content_type, tuple(spans))


def alone(own: Iterable[Span], others: Iterable[Span]) -> list[Span]:
    """Return the stretches of `own` without those of `others`, in order of time."""
    spans: list[Span] = []
    taken = sorted(others)
    first, at = 0, 0
    for start, end in sorted(own):
        at = max(at, start)
        while first < len(taken) and taken[first][0] < end:
            begin, stop = taken[first]
            if begin > at:
                spans.append((at, begin))
            at = max(at, stop)
            if stop > end:
                break  # It may overlap the next turn.
            first += 1
        if at < end:
            spans.append((at, end))
            at = end
    return spans


def longest(spans: Sequence[Span]) -> list[Span]:
    """Return the longest stretches, in order of time, of at most LONGEST_MS together."""
    chosen: list[Span] = []
    left = LONGEST_MS
    for start, end in sorted(spans, key=lambda span: span[0] - span[1]):
        if end - start < SHORTEST_MS or left < SHORTEST_MS:
            break
        chosen.append((start, min(end, start + left)))
        left -= chosen[-1][1] - start
    return sorted(chosen)
