"""Renders the result of a job as JSON portion by portion, so that memory never holds a result of many hours.

An entry appears once its service has ended. Its shape is the one that public clients of the job
interface read. Every piece ends between JSON tokens.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, Final

import msgspec

from app.http.turns import holder_of
from app.windows import WindowRenderer
from topics import languages
from topics.errors import Unavailable
from topics.jobs import payloads
from topics.jobs.options import Service
from topics.jobs.payloads import Overlap, Segment
from topics.jobs.rules import Entry, EntryState, JobHead
from topics.ports.jobs import Jobs, JobView
from topics.times import HOUR_MS, clock
from topics.turns import Holder

#: Later than the end of any recording.
UNKNOWN_MS: Final = 10**15
#: The format into which every recording is decoded.
PROCESSED: Final[dict[str, Any]] = {"sample_rate_hz": 16_000, "channels": 1, "encoding": "pcm_f32le"}
#: The fields of insights, in the order of the public description.
_INSIGHTS: Final = (
    "contains_speech",
    "detected_language",
    "primary_sound_environment",
    "situation_summary",
    "notable_events",
    "speech_content_summary",
    "keywords",
)


class JobReading(msgspec.Struct, frozen=True):
    """One consistent reading of a job, and its id."""

    job: str
    view: JobView

    @property
    def head(self) -> JobHead:
        return self.view.head

    @property
    def holder(self) -> Holder:
        return holder_of(self.view.accepted, self.job)

    @property
    def hours(self) -> bool:
        """True if times include hours: the recording lasts one or more according to an entry."""
        return any(entry.audio_ms >= HOUR_MS for entry in self.head.entries)

    @property
    def end_ms(self) -> int:
        """Return the end of the audio, from the service that heard most of it; UNKNOWN_MS if every service failed."""
        return max((entry.audio_ms for entry in self.head.entries), default=0) or UNKNOWN_MS


class ResultRenderer:
    """Reads and renders the results of jobs; every call may raise Unavailable."""

    def __init__(self, jobs: Jobs, tags: Callable[[str], Sequence[str]]) -> None:
        self._jobs = jobs
        self.window_renderer: Callable[[str], WindowRenderer] = lru_cache(maxsize=16)(
            lambda model: WindowRenderer(tags(model))
        )

    def result(self, reading: JobReading) -> Iterator[bytes]:
        """Yield the result object: the entries that have ended, and the metadata."""
        yield b"{"
        for entry in reading.head.entries:
            if entry.ended:
                yield b'"%s":' % entry.service.encode("ascii")
                yield from self.entry(reading, entry)
                yield b","
        yield b'"metadata":%s}' % msgspec.json.encode(metadata(reading.view))

    def entry(self, reading: JobReading, entry: Entry) -> Iterator[bytes]:
        """Yield the entry of a finished service; sounds and speech keep the results before an error."""
        broken = entry.state is EntryState.ERROR
        yield b'{"status":"error","error":%s' % msgspec.json.encode(entry.error) if broken else b'{"status":"success"'
        if entry.service in (Service.SOUND, Service.SPEECH):
            if entry.portions or not broken:
                sounds = entry.service is Service.SOUND
                if not sounds and (spoken := self._languages(reading, entry)):
                    yield b',"detected_language":%s' % msgspec.json.encode(spoken)
                yield from _results_member(self._windows(reading, entry) if sounds else self._speech(reading, entry))
        elif not broken:
            yield from self._text_members(reading, entry)
        yield b"}"

    def count(self, reading: JobReading, entry: Entry) -> int:
        """Return the number of an entry's results: windows, turns, or 1 for a service that writes a text."""
        if entry.service is Service.SOUND:
            last = [payloads.sounds(data) for data in self.portions(reading, entry, entry.portions - 1)]
            return sum(sounds.first + sounds.windows for sounds in last)
        if entry.service is Service.SPEECH:
            return sum(1 for _ in self.turns(reading, entry))
        return sum(1 for _ in self.translated_texts(reading, entry)) if entry.service is Service.TRANSLATION else 1

    def portions(self, reading: JobReading, entry: Entry, first: int = 0) -> Iterator[bytes]:
        """Yield the portions of an entry that has ended.

        Raises:
            Unavailable: the job was removed meanwhile.
        """
        for number in range(max(first, 0), entry.portions):
            data = self._jobs.portion(reading.job, entry.service, number)
            if data is None:
                raise Unavailable("the job was removed while it was read")
            yield data

    def translated_texts(self, reading: JobReading, entry: Entry) -> Iterator[str]:
        """Yield the texts of a translation, one for each turn of the transcript."""
        for data in self.portions(reading, entry):
            yield from payloads.translated(data).texts

    def turns(self, reading: JobReading, entry: Entry) -> Iterator[Segment]:
        for data in self.portions(reading, entry):
            yield from payloads.transcript(data).segments

    def _languages(self, reading: JobReading, entry: Entry) -> str:
        """Return the English names of the languages heard, comma-separated, most frequent first."""
        heard = [payloads.transcript(data).languages for data in self.portions(reading, entry, entry.portions - 1)]
        return ", ".join(dict.fromkeys(languages.name(language) for last in heard for language in last))

    def _windows(self, reading: JobReading, entry: Entry) -> Iterator[bytes]:
        for data in self.portions(reading, entry):
            sounds = payloads.sounds(data)
            renderer = self.window_renderer(sounds.model)
            yield from renderer.job_windows(sounds.first, sounds.scores, reading.hours, reading.end_ms)

    def _speech(self, reading: JobReading, entry: Entry) -> Iterator[bytes]:
        translation = reading.head.entry(Service.TRANSLATION)
        with_words = reading.view.accepted.options.word_times
        texts: Iterator[str] = iter(())
        if translation is not None and translation.state is EntryState.SUCCESS:
            texts = self.translated_texts(reading, translation)
        for segment in self.turns(reading, entry):
            turn = {
                "transcript": segment.text,
                **_times(segment, reading.hours),
                "speaker": speaker_label(segment),
                "speaker_name": segment.name or None,
                "speaker_score": round(segment.score, 4),
                "item_ids": {},
            }
            if with_words:
                turn["words"] = [
                    {"word": word.text, "start_time_sec": word.start_ms / 1000, "end_time_sec": word.end_ms / 1000}
                    for word in segment.words
                ]
            if segment.overlap_ms:
                turn["overlap_sec"] = segment.overlap_ms / 1000
            if segment.overlaps:
                turn["overlaps"] = [
                    {
                        "start_time_sec": overlap.start_ms / 1000,
                        "end_time_sec": overlap.end_ms / 1000,
                        "speaker": speaker_label(overlap),
                        "speaker_name": overlap.name or None,
                    }
                    for overlap in segment.overlaps
                ]
            if (text := next(texts, None)) is not None:
                turn["translation"] = text
            yield msgspec.json.encode(turn)

    def _text_members(self, reading: JobReading, entry: Entry) -> Iterator[bytes]:
        """Yield the members of the entry of a service that reads other services' results."""
        if entry.service is Service.TRANSLATION:
            yield b',"target_lang":%s' % msgspec.json.encode(reading.view.accepted.options.translation_target_lang)
            yield from _results_member(self._translation(reading, entry))
            return
        for data in self.portions(reading, entry):
            written = msgspec.structs.asdict(payloads.PORTION_DECODERS[entry.service].decode(data))
            names = _INSIGHTS if entry.service is Service.INSIGHTS else written
            result = {name: written[name] for name in names if written[name] is not None}
            yield b',"result":%s' % msgspec.json.encode(result)
            if names is _INSIGHTS:
                yield b',"item_ids":%s' % msgspec.json.encode({name: f"insights-{name}" for name in result})

    def _translation(self, reading: JobReading, entry: Entry) -> Iterator[bytes]:
        speech = reading.head.entry(Service.SPEECH)
        segments = self.turns(reading, speech) if speech is not None else iter(())
        for segment, text in zip(segments, self.translated_texts(reading, entry), strict=False):
            times = _times(segment, reading.hours)
            yield msgspec.json.encode({"transcript": segment.text, "translation": text, **times})


def metadata(view: JobView) -> dict[str, Any]:
    """Return the facts about the recording, and the warnings of finished services."""
    source = view.accepted.source
    original = {
        "filename": source.filename,
        "format": source.format,
        "size_bytes": source.size,
        "content_type": source.declared or source.content_type,
    }
    conversion = {"resampled": source.rate != PROCESSED["sample_rate_hz"], "downmixed": source.channels > 1}
    # Several services may report the same warning.
    warnings = list(dict.fromkeys(warning for entry in view.head.entries for warning in entry.warnings))
    return {"audio": {"input": original, "processed": {**PROCESSED, **conversion}}, "warnings": warnings}


def speaker_label(part: Segment | Overlap) -> str:
    """Return the label of a voice, stable within one job."""
    return f"SPEAKER_{part.speaker:02d}"


def _times(segment: Segment, hours: bool) -> dict[str, object]:
    return {
        "start_time": clock(segment.start_ms, hours),
        "end_time": clock(segment.end_ms, hours),
        "start_time_sec": segment.start_ms / 1000,
        "end_time_sec": segment.end_ms / 1000,
    }


def _results_member(items: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the member `results`, with commas between the items; an item may itself contain several."""
    separator = b',"results":['
    for item in items:
        yield separator
        yield item
        separator = b","
    yield b"]" if separator == b"," else separator + b"]"
