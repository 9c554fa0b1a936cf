"""Speech engines: OpenAI's `POST /v1/audio/transcriptions` (https://platform.openai.com/docs/api-reference/audio)."""

from __future__ import annotations

from typing import ClassVar, Final

import msgspec

from streams.clients.client import EngineClient

#: Words, segments, and characters of all of them in one answer: a piece of speech has far fewer.
MAX_PARTS: Final = 10_000
MAX_CHARACTERS: Final = 50_000


class TranscribedWord(msgspec.Struct, frozen=True):
    """A word and its times in seconds; some servers do not know them all."""

    word: str = ""
    start: float | None = None
    end: float | None = None


class TranscribedSegment(msgspec.Struct, frozen=True):
    """A segment as the engine cut it."""

    text: str = ""
    start: float | None = None
    end: float | None = None
    #: Some servers put the words here.
    words: tuple[TranscribedWord, ...] | None = None


class Transcription(msgspec.Struct, frozen=True):
    """The answer, of which plain servers give the text alone; times are in seconds from the beginning of the piece."""

    text: str
    #: A code or an English name.
    language: str | None = None
    segments: tuple[TranscribedSegment, ...] | None = None
    words: tuple[TranscribedWord, ...] | None = None


_decoder: Final = msgspec.json.Decoder(Transcription)


class TranscriptionClient(EngineClient):
    """A server that writes down speech."""

    path: ClassVar = "/v1/audio/transcriptions"
    name: ClassVar = "speech"
    label: ClassVar = "ASR Engine"

    async def transcribe(
        self, wav: bytes, idempotency_key: str, *, model: str | None = None, language: str | None = None
    ) -> Transcription:
        """Return what is said in a WAV file; the language is found when none is given.

        Raises:
            ServiceFault: see `EngineClient.post`; or the answer is no transcription, or an absurdly long one.
        """
        fields: dict[str, str | list[str]] = {
            "response_format": "verbose_json",
            "timestamp_granularities[]": ["word", "segment"],
        }
        if model is not None:
            fields["model"] = model
        if language is not None:
            fields["language"] = language
        body = await self.post(idempotency_key, fields=fields, file=("speech.wav", wav, "audio/wav"))
        found = self.decoded(_decoder, body)
        words = [*(found.words or ()), *(word for part in found.segments or () for word in part.words or ())]
        texts = [found.text, *(word.word for word in words), *(part.text for part in found.segments or ())]
        if len(texts) > MAX_PARTS or sum(map(len, texts)) > MAX_CHARACTERS:
            raise self.unusable("it is too long for the speech that was sent")
        return found
