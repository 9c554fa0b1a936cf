"""Speech engines: OpenAI's `POST /v1/audio/transcriptions` and `/v1/audio/translations`.

Protocol: https://platform.openai.com/docs/api-reference/audio. The bundled engine also takes `likely_language`.
"""

from typing import ClassVar, Final

import msgspec

from streams.clients.client import EngineClient

#: Words and segments of one answer, and characters of all of them: a piece of speech has far fewer.
MAX_PARTS: Final = 10_000
MAX_CHARACTERS: Final = 50_000


class TranscribedWord(msgspec.Struct, frozen=True):
    """A word and its times in seconds; some servers leave times out."""

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
    """The answer; times are in seconds from the beginning of the recording. Simple servers give the text alone."""

    text: str
    #: A code or an English name.
    language: str | None = None
    segments: tuple[TranscribedSegment, ...] | None = None
    words: tuple[TranscribedWord, ...] | None = None


_decoder: Final = msgspec.json.Decoder(Transcription)


class TranscriptionClient(EngineClient):
    """A server that transcribes speech. Loop only."""

    path: ClassVar = "/v1/audio/transcriptions"
    name: ClassVar = "speech"
    label: ClassVar = "ASR Engine"

    async def transcribe(
        self,
        wav: bytes,
        idempotency_key: str,
        *,
        model: str | None = None,
        language: str | None = None,
        likely_language: str | None = None,
        prompt: str | None = None,
    ) -> Transcription:
        """Return the words of a WAV file; without `language`, a code, the engine detects it.

        `model` None takes the engine's own. `likely_language` is what the rest of the recording is in, for the bundled
        engine alone. `prompt` has names and terms that may be said.

        Raises:
            ServiceFault: as of `post`, or an answer that is not a transcription or absurdly long.
        """
        fields: dict[str, str | list[str]] = {
            "response_format": "verbose_json",
            "timestamp_granularities[]": ["word", "segment"],
        }
        given = {"model": model, "language": language, "likely_language": likely_language, "prompt": prompt}
        fields |= {name: value for name, value in given.items() if value is not None}
        body = await self.post(idempotency_key, fields=fields, file=("speech.wav", wav, "audio/wav"))
        answer = self.decode(_decoder, body)
        words = [*(answer.words or ()), *(word for part in answer.segments or () for word in part.words or ())]
        texts = [answer.text, *(word.word for word in words), *(part.text for part in answer.segments or ())]
        if len(texts) > MAX_PARTS or sum(map(len, texts)) > MAX_CHARACTERS:
            raise self.unusable_answer("it is too long for the speech that was sent")
        return answer


class SpeechTranslationClient(TranscriptionClient):
    """A server that translates speech of other languages into English text. Loop only."""

    path: ClassVar = "/v1/audio/translations"
    name: ClassVar = "translation"
    label: ClassVar = "Translation"
