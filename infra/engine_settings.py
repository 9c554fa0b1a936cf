"""Settings of the engines: their addresses, and the bounds of calls."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal
from urllib.parse import urlsplit

import msgspec
from pydantic import AfterValidator, Field, SecretStr
from pydantic_settings import BaseSettings

from infra import urls

#: The longest model name that a job may ask for, in characters.
MODEL_NAME: Final = 128


def _names(text: str) -> str:
    if not all(0 < len(name.strip()) <= MODEL_NAME for name in text.split(",")):
        raise ValueError(f"must be names of 1 to {MODEL_NAME} characters, comma-separated")
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


EngineName = Literal["speech", "caption", "translation", "speaker"]


class ChosenEngine(msgspec.Struct, frozen=True):
    """The address of an engine and the bounds of its calls; without a URL it is the bundled engine."""

    url: str | None
    key: SecretStr | None
    model: str | None
    #: Seconds for one whole call.
    timeout: float
    #: Concurrent calls.
    concurrency: int


EngineUrl = Annotated[str, AfterValidator(_engine_url)]
EngineKey = Annotated[SecretStr, AfterValidator(_engine_key)]


class EngineSettings(BaseSettings):
    """Settings of all engines."""

    bundled_engines: bool = Field(
        default=True, description="Start the bundled engine server, used for every engine below without a URL."
    )
    speech_url: EngineUrl | None = Field(
        default=None,
        description="URL of the speech engine (OpenAI's `/v1/audio/transcriptions`); by default the bundled one.",
    )
    speech_key: EngineKey | None = Field(default=None, description="Key of the speech engine.")
    speech_model: str | None = Field(
        default=None,
        min_length=1,
        max_length=200,
        description="Model of the speech engine. The bundled one has `whisper-base` (the default) and "
        "`whisper-tiny.en` (English, for small machines, made by `make tiny`).",
    )
    speech_models: Annotated[str, AfterValidator(_names)] | None = Field(
        default=None,
        description="Further models of the speech engine, comma-separated, that a job may name in `speech_model`. Any "
        "other is refused, because the engine's key is the operator's.",
    )
    speech_timeout: float = Field(
        default=30.0,
        gt=0,
        le=3600,
        description="Timeout of the speech engine for one piece, in seconds; the bundled one has the time of "
        "all pieces that it decodes together.",
    )
    speech_concurrency: int = Field(default=4, ge=1, le=1024, description="Concurrent requests to the speech engine.")
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
        description="Threads of the bundled speech engine; by default one per core, up to four.",
    )
    speech_batch: int = Field(
        default=4,
        ge=1,
        le=32,
        description="Pieces of speech that the bundled engine decodes in a batch: more take more memory, fewer take "
        "more time.",
    )
    speech_idle_seconds: float = Field(
        default=300.0,
        ge=1,
        allow_inf_nan=False,
        description="How long the bundled speech engine keeps its model in memory after use.",
    )
    caption_url: EngineUrl | None = Field(
        default=None,
        description="URL of the caption and insights engine (OpenAI's `/v1/chat/completions` with a JSON schema); by "
        "default the bundled one.",
    )
    caption_key: EngineKey | None = Field(default=None, description="Key of the caption engine.")
    caption_model: str | None = Field(
        default=None, min_length=1, max_length=200, description="Model of the caption engine."
    )
    caption_timeout: float = Field(
        default=120.0, gt=0, le=3600, description="Timeout of the caption engine, in seconds."
    )
    caption_concurrency: int = Field(default=4, ge=1, le=1024, description="Concurrent requests to the caption engine.")
    translation_url: EngineUrl | None = Field(
        default=None,
        description="URL of the translation engine (LibreTranslate's `/translate`); there is no bundled one.",
    )
    translation_key: EngineKey | None = Field(default=None, description="Key of the translation engine.")
    translation_timeout: float = Field(
        default=30.0, gt=0, le=3600, description="Timeout of the translation engine, in seconds."
    )
    translation_concurrency: int = Field(
        default=2, ge=1, le=1024, description="Concurrent requests to the translation engine."
    )
    speaker_url: EngineUrl | None = Field(
        default=None,
        description="URL of the speaker engine (speaches' `/v1/audio/speech/embedding`); by default the bundled one.",
    )
    speaker_key: EngineKey | None = Field(default=None, description="Key of the speaker engine.")
    speaker_model: str | None = Field(
        default=None, min_length=1, max_length=200, description="Model of the speaker engine."
    )
    speaker_timeout: float = Field(
        default=30.0, gt=0, le=3600, description="Timeout of the speaker engine, in seconds."
    )
    speaker_concurrency: int = Field(default=4, ge=1, le=1024, description="Concurrent requests to the speaker engine.")
    speaker_threshold: float | None = Field(
        default=None,
        gt=-1,
        lt=1,
        description="Least cosine between a voice and a registered speaker; by default the engine's for its model, "
        "else 0.5.",
    )

    @property
    def allowed_speech_models(self) -> frozenset[str]:
        """Models that jobs may ask of the speech engine besides its own."""
        return frozenset(name.strip() for name in self.speech_models.split(",")) if self.speech_models else frozenset()

    def engine(self, name: EngineName) -> ChosenEngine:
        """Return the settings of an engine; the protocol of translation names no model."""
        values: list[Any] = [getattr(self, f"{name}_{field}", None) for field in ChosenEngine.__struct_fields__]
        return ChosenEngine(*values)
