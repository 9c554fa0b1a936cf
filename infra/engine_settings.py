"""Settings of the engines: where each of them answers, and the bounds of its calls."""

from __future__ import annotations

from typing import Annotated, Final
from urllib.parse import urlsplit

import msgspec
from pydantic import AfterValidator, Field, SecretStr
from pydantic_settings import BaseSettings

from infra import urls

#: Characters of the longest name of a model that a job may ask for.
MODEL_NAME: Final = 128


def _names(text: str) -> str:
    if not all(0 < len(name.strip()) <= MODEL_NAME for name in text.split(",")):
        raise ValueError(f"must be names of 1 to {MODEL_NAME} characters, with commas between them")
    return text


def _engine_url(url: str) -> str:
    if not urls.is_http(url):
        raise ValueError("must be an http:// or https:// URL")
    if "@" in urlsplit(url).netloc:
        raise ValueError("must not contain a user or password; a key has its own setting")
    return url


def _engine_key(key: SecretStr) -> SecretStr:
    value = key.get_secret_value()
    if not value.isascii() or not value.isprintable() or " " in value:
        raise ValueError("must be printable ASCII characters without spaces")
    return key


class ChosenEngine(msgspec.Struct, frozen=True):
    """The address of an engine, and the bounds of its calls; without a URL it is the bundled one."""

    url: str | None
    key: SecretStr | None
    model: str | None
    #: Seconds for one whole call.
    timeout: float
    #: Calls at the same time.
    concurrency: int


EngineUrl = Annotated[str, AfterValidator(_engine_url)]
EngineKey = Annotated[SecretStr, AfterValidator(_engine_key)]


class EngineSettings(BaseSettings):
    """Settings of all engines."""

    bundled_engines: bool = Field(
        default=True,
        description="Start the bundled engine server, which does the work of every engine below that has no URL.",
    )
    speech_url: EngineUrl | None = Field(
        default=None,
        description="Speech engine that answers OpenAI's `/v1/audio/transcriptions`; by default the bundled one.",
    )
    speech_key: EngineKey | None = Field(default=None, description="Key of the speech engine.")
    speech_model: str | None = Field(
        default=None,
        min_length=1,
        max_length=200,
        description="Model that is asked of the speech engine; of the bundled one `whisper-base` (by default) or "
        "`whisper-tiny.en` (English, for small machines, made by `make tiny`).",
    )
    speech_models: Annotated[str, AfterValidator(_names)] | None = Field(
        default=None,
        description="Other models, with commas between them, that a job may ask of the speech engine by "
        "`speech_model`; others are refused, since the engine's key is the operator's.",
    )
    speech_timeout: float = Field(
        default=30.0, gt=0, le=3600, description="Seconds that the speech engine has for one piece of a recording."
    )
    speech_concurrency: int = Field(
        default=4, ge=1, le=1024, description="Pieces that are with the speech engine at the same time."
    )
    speech_piece_seconds: int = Field(
        default=30,
        ge=1,
        le=600,
        description="Longest piece of a recording for the speech engine; pieces end at pauses.",
    )
    speech_threads: int | None = Field(
        default=None,
        ge=1,
        le=64,
        description="Threads of the bundled speech engine; by default one for each core, up to four.",
    )
    speech_batch: int = Field(
        default=4,
        ge=1,
        le=32,
        description="Pieces of speech that the bundled engine decodes side by side; each takes memory, and fewer take "
        "more time.",
    )
    speech_idle_seconds: float = Field(
        default=300.0,
        ge=1,
        description="How long the bundled speech engine keeps its model in memory after it was used.",
    )
    caption_url: EngineUrl | None = Field(
        default=None,
        description="Engine of captions and insights that answers OpenAI's `/v1/chat/completions` with a JSON schema; "
        "by default the bundled one.",
    )
    caption_key: EngineKey | None = Field(default=None, description="Key of the caption engine.")
    caption_model: str | None = Field(
        default=None, min_length=1, max_length=200, description="Model that is asked of the caption engine."
    )
    caption_timeout: float = Field(
        default=120.0, gt=0, le=3600, description="Seconds that the caption engine has for one answer."
    )
    caption_concurrency: int = Field(
        default=4, ge=1, le=1024, description="Questions that are with the caption engine at the same time."
    )
    translation_url: EngineUrl | None = Field(
        default=None,
        description="Translation engine that answers LibreTranslate's `/translate`; there is no bundled one.",
    )
    translation_key: EngineKey | None = Field(default=None, description="Key of the translation engine.")
    translation_timeout: float = Field(
        default=30.0, gt=0, le=3600, description="Seconds that the translation engine has for one answer."
    )
    translation_concurrency: int = Field(
        default=2, ge=1, le=1024, description="Requests that are with the translation engine at the same time."
    )
    speaker_url: EngineUrl | None = Field(
        default=None,
        description="Speaker engine that answers speaches' `/v1/audio/speech/embedding`; by default the bundled one.",
    )
    speaker_key: EngineKey | None = Field(default=None, description="Key of the speaker engine.")
    speaker_model: str | None = Field(
        default=None, min_length=1, max_length=200, description="Model that is asked of the speaker engine."
    )
    speaker_timeout: float = Field(
        default=30.0, gt=0, le=3600, description="Seconds that the speaker engine has for one voice."
    )
    speaker_concurrency: int = Field(
        default=4, ge=1, le=1024, description="Voices that are with the speaker engine at the same time."
    )
    speaker_threshold: float | None = Field(
        default=None,
        gt=-1,
        lt=1,
        description="Cosine from which a voice is a registered speaker's; by default what the engine tells of its "
        "model, else 0.5.",
    )

    @property
    def speech(self) -> ChosenEngine:
        return ChosenEngine(
            self.speech_url, self.speech_key, self.speech_model, self.speech_timeout, self.speech_concurrency
        )

    @property
    def allowed_speech_models(self) -> frozenset[str]:
        """Models that jobs may ask of the speech engine besides its own."""
        return frozenset(name.strip() for name in self.speech_models.split(",")) if self.speech_models else frozenset()

    @property
    def caption(self) -> ChosenEngine:
        return ChosenEngine(
            self.caption_url, self.caption_key, self.caption_model, self.caption_timeout, self.caption_concurrency
        )

    @property
    def translation(self) -> ChosenEngine:
        """The engine that translates; its protocol names no model."""
        return ChosenEngine(
            self.translation_url, self.translation_key, None, self.translation_timeout, self.translation_concurrency
        )

    @property
    def speaker(self) -> ChosenEngine:
        return ChosenEngine(
            self.speaker_url, self.speaker_key, self.speaker_model, self.speaker_timeout, self.speaker_concurrency
        )
