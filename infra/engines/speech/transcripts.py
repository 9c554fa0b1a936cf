"""The result of speech recognition, and the response formats of OpenAI's transcription protocol.

Protocol: https://platform.openai.com/docs/api-reference/audio/createTranscription
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, Literal

import msgspec

from topics.captions import Cue, subrip, webvtt

#: A segment ends at a pause of this length, or before it would exceed the longest length.
PAUSE_S: Final = 0.6
LONGEST_S: Final = 15.0

Form = Literal["json", "text", "srt", "verbose_json", "vtt"]
Granularity = Literal["word", "segment"]


class Word(msgspec.Struct, frozen=True, array_like=True):
    """A word with the white space before it; times are in seconds from the beginning of the recording."""

    text: str
    start: float
    end: float
    #: The decoder's confidence, 0 to 1.
    probability: float


class RecognitionResult(msgspec.Struct, frozen=True, tag="transcript"):
    """The words of a recording of `duration` seconds."""

    duration: float
    words: tuple[Word, ...]
    #: English name of the language, in lower case; None if nothing is said.
    language: str | None = None


def segments(words: Iterable[Word]) -> list[list[Word]]:
    """Cut words, in order of time, into segments at pauses; no segment is empty."""
    cut: list[list[Word]] = []
    for word in words:
        last = cut[-1] if cut else []
        if last and word.start - last[-1].end < PAUSE_S and word.end - last[0].start <= LONGEST_S:
            last.append(word)
        else:
            cut.append([word])
    return cut


def text(words: Iterable[Word]) -> str:
    return "".join(word.text for word in words).strip()


def verbose(heard: RecognitionResult, granularities: Sequence[Granularity], task: str) -> dict[str, Any]:
    """Return the body of `verbose_json`: with segments unless only words were requested."""
    body: dict[str, Any] = {
        "task": task,
        "language": heard.language,
        "duration": round(heard.duration, 3),
        "text": text(heard.words),
    }
    if not granularities or "segment" in granularities:
        body["segments"] = [_segment(number, words) for number, words in enumerate(segments(heard.words))]
    if "word" in granularities:
        body["words"] = [{"word": word.text.strip(), "start": word.start, "end": word.end} for word in heard.words]
    return body


def _segment(number: int, words: Sequence[Word]) -> dict[str, Any]:
    sure = sum(math.log(max(word.probability, 1e-6)) for word in words) / len(words)
    return {
        "id": number,
        "start": words[0].start,
        "end": words[-1].end,
        "text": text(words),
        "avg_logprob": round(sure, 4),
        "no_speech_prob": 0.0,
    }


def srt(heard: RecognitionResult) -> str:
    return _file(subrip(_cues(heard)))


def vtt(heard: RecognitionResult) -> str:
    return _file(webvtt(_cues(heard)))


def _cues(heard: RecognitionResult) -> Iterator[Cue]:
    for words in segments(heard.words):
        yield Cue(round(words[0].start * 1000), round(words[-1].end * 1000), "", (text(words),))


def _file(pieces: Iterable[bytes]) -> str:
    # In this protocol no blank line follows the last cue.
    return b"".join(pieces).decode().removesuffix("\n")


#: Content type and writer of each format that is not JSON.
PLAIN: Final[dict[str, tuple[str, Callable[[RecognitionResult], str]]]] = {
    "text": ("text/plain", lambda heard: text(heard.words) + "\n"),
    "srt": ("application/x-subrip", srt),
    "vtt": ("text/vtt", vtt),
}
