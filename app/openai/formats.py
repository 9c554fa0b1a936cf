"""The transcript of a job in the formats of OpenAI's interface."""

import zlib
from collections.abc import Collection, Iterator, Sequence
from contextlib import aclosing
from typing import Final

import msgspec
from msgspec import UNSET

from app.http.replies import Reply, json_reply, reply_of_bytes
from app.jobs.cues import speech_cues
from app.jobs.job_context import JobContext
from app.jobs.rendering import JobReading
from app.openai.answers import (
    DiarizedTranscription,
    DurationUsage,
    PlainTranscription,
    SpeakerSegment,
    TranscriptSegment,
    TranscriptWord,
    VerboseTranscription,
)
from app.openai.errors import TranscriptionFailed
from app.openai.requests import FOUND, Format, Granularity, SpeechRequest, Task
from topics.captions import subrip, webvtt
from topics.jobs import payloads
from topics.jobs.options import Service
from topics.jobs.payloads import Segment
from topics.jobs.rules import Entry, EntryState
from topics.languages import name

_TEXT: Final = (b"content-type", b"text/plain; charset=utf-8")
_LETTERS: Final = 26


class Transcript(msgspec.Struct, frozen=True):
    """The results of a job."""

    #: In the requested language.
    segments: Sequence[Segment]
    audio_ms: int
    #: Its English name in lower case, or "" if nobody spoke.
    language: str

    @property
    def text(self) -> str:
        return " ".join(segment.text for segment in self.segments if segment.text)

    @property
    def usage(self) -> DurationUsage:
        return DurationUsage(-(-self.audio_ms // 1000))


async def transcript_of(context: JobContext, reading: JobReading, task: Task) -> Transcript:
    """Return the transcript of a finished job, or its translation.

    Raises:
        TranscriptionFailed: it has none; gives the reason.
        Unavailable: the job was removed meanwhile.
    """
    speech = _succeeded(reading, Service.SPEECH)
    segments: list[Segment] = []
    heard: tuple[str, ...] = ()
    portions = map(payloads.transcript, context.renderer.portions(reading, speech))
    async with aclosing(context.turns.each(reading.holder, portions)) as transcripts:
        async for portion in transcripts:
            segments += portion.segments
            heard = portion.languages or heard
    if task is Task.TRANSLATE:
        texts = context.renderer.translated_texts(reading, _succeeded(reading, Service.TRANSLATION))
        segments = [msgspec.structs.replace(segment, text=text) for segment, text in zip(segments, texts, strict=False)]
    asked = reading.view.accepted.options.speech_lang
    spoken = next(iter(heard), "") if asked.lower() in FOUND else asked
    return Transcript(segments, speech.audio_ms, "english" if task is Task.TRANSLATE else name(spoken).lower())


def _succeeded(reading: JobReading, service: Service) -> Entry:
    entry = reading.head.entry(service)
    if entry is None or entry.state is not EntryState.SUCCESS:
        raise TranscriptionFailed(f"{service} failed: {None if entry is None else entry.error}", reading.job)
    return entry


def answer(transcript: Transcript, request: SpeechRequest) -> Reply:
    """Return the answer to a request; takes a moment for hours of speech."""
    match request.format:
        case Format.TEXT:
            return reply_of_bytes(200, _TEXT, f"{transcript.text}\n".encode())
        case Format.SRT | Format.VTT:
            cues = (
                msgspec.structs.replace(cue, voice="")
                for segment in transcript.segments
                for cue in speech_cues(segment, with_names=False)
            )
            pieces = subrip(cues) if request.format is Format.SRT else webvtt(cues)
            return reply_of_bytes(200, _TEXT, b"".join(pieces))
        case Format.VERBOSE:
            return json_reply(_verbose(transcript, request))
        case Format.DIARIZED:
            labels = SpeakerLabels(request.names)
            segments = [diarized_segment(number, segment, labels) for number, segment in enumerate(transcript.segments)]
            seconds = transcript.audio_ms / 1000
            return json_reply(DiarizedTranscription(request.task, seconds, transcript.text, segments, transcript.usage))
        case _:
            return json_reply(PlainTranscription(transcript.text, transcript.usage))


def _verbose(transcript: Transcript, request: SpeechRequest) -> VerboseTranscription:
    granularities = request.granularities
    words = (
        TranscriptWord(word.text, word.start_ms / 1000, word.end_ms / 1000)
        for segment in transcript.segments
        for word in segment.words
    )
    return VerboseTranscription(
        request.task,
        transcript.language,
        transcript.audio_ms / 1000,
        transcript.text,
        transcript.usage,
        list(words) if Granularity.WORD in granularities else UNSET,
        list(_segments(transcript.segments, request.temperature)) if Granularity.SEGMENT in granularities else UNSET,
    )


def _segments(segments: Sequence[Segment], temperature: float) -> Iterator[TranscriptSegment]:
    for number, segment in enumerate(segments):
        text = segment.text.encode()
        yield TranscriptSegment(
            number,
            segment.start_ms // 10,
            segment.start_ms / 1000,
            segment.end_ms / 1000,
            segment.text,
            temperature,
            len(text) / len(zlib.compress(text)),
        )


class SpeakerLabels:
    """Names speakers in one answer: known ones by name, the others `A`, `B`, … in order of appearance."""

    def __init__(self, names: Collection[str]) -> None:
        self._names = names
        self._letters: dict[int, str] = {}

    def label(self, segment: Segment) -> str:
        if segment.name in self._names:
            return segment.name
        return self._letters.setdefault(segment.speaker, _letters(len(self._letters)))


def _letters(number: int) -> str:
    """Return A to Z, AA, AB, …"""
    rest, last = divmod(number, _LETTERS)
    return (_letters(rest - 1) if rest else "") + chr(ord("A") + last)


def diarized_segment(number: int, segment: Segment, labels: SpeakerLabels) -> SpeakerSegment:
    """Return a segment with its speaker, as in a stream of events too."""
    start, end = segment.start_ms / 1000, segment.end_ms / 1000
    return SpeakerSegment(f"seg_{number}", start, end, segment.text, labels.label(segment))
