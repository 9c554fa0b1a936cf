"""Speech engines: OpenAI's `POST /v1/audio/transcriptions` and `/v1/audio/translations`.

Protocol: https://platform.openai.com/docs/api-reference/audio. The bundled engine also accepts `likely_language`.
"""

from typing import ClassVar, Final

import msgspec

from streams.clients.client import EngineClient

#: Limits on an answer's words and segments, and on their characters; a piece of speech has far fewer.
MAX_PARTS: Final = 10_000
MAX_CHARACTERS: Final = 50_000


class TranscribedWord(msgspec.Struct, frozen=True):
    """A word and its times in seconds; some servers leave times out."""

    word: str = ""
    start: float | None = None
    end: float | None = None


class TranscribedSegment(msgspec.Struct, frozen=True):
    """A segment of the engine's answer."""

    text: str = ""
    start: float | None = None
    end: float | None = None
    #: Some servers put the words here.
    words: tuple[TranscribedWord, ...] | None = None


class Transcription(msgspec.Struct, frozen=True):
    """The answer; times are in seconds from the start of the recording. Simple servers send only the text."""

    text: str
    #: A code or an English name.
    language: str | None = None
    segments: tuple[TranscribedSegment, ...] | None = None
    words: tuple[TranscribedWord, ...] | None = None


_decoder: Final = msgspec.json.Decoder(Transcription)


class TranscriptionClient(EngineClient):
    """Calls a server that transcribes speech. Loop only."""

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
        """Return the words of a WAV file; without `language` (a code), the engine detects it.

        Without `model`, the engine uses its own. `likely_language`, for the bundled engine only, is the language of the
        rest of the recording. `prompt` lists names and terms that may occur.

        Raises:
            ServiceFault: as in `post`, or the answer is no transcription or absurdly long.
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
    """Calls a server that translates speech of other languages into English text. Loop only."""

    path: ClassVar = "/v1/audio/translations"
    name: ClassVar = "translation"
    label: ClassVar = "Translation"
