"""Settings of the service: read once from the environment, checked, and handed on as arguments."""

from __future__ import annotations

import difflib
import os
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Final, Literal, get_args
from urllib.parse import urlsplit

import msgspec
from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, ValidationError, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from app.http.bodies import chunk_body
from infra import secret_files, urls
from infra.errors import PREFIX, WrongSetting, variable
from infra.kafka_settings import KafkaSettings
from infra.urls import Broker
from topics import apikeys, catalog

#: Variables that commands and tests read; no settings, and no typing errors either.
_COMMANDS: Final = frozenset({"EARSHOT_URL", "EARSHOT_ADMIN_URL"})
_COMMAND_SECRETS: Final = ("project_key", "org_key", "engines_key")
_TESTS: Final = "EARSHOT_TEST_"

MIB: Final = 1024 * 1024
#: Characters of the longest name of a model that a job may ask for.
MODEL_NAME: Final = 128
EMBEDDED_PARTITIONS: Final = 4
KAFKA_PARTITIONS: Final = 16
#: The vendor's clients send pieces of 5,000,000 bytes. Kafka's topics are made for their largest record.
ROOMY_CHUNK_LIMIT: Final = 5 * MIB


#: As browsers write it: https://html.spec.whatwg.org/multipage/browsers.html#ascii-serialisation-of-an-origin.
_ORIGIN: Final = re.compile(r"https?://([a-z0-9]([a-z0-9.-]*[a-z0-9])?|\[[0-9a-f:.]+\])(:[1-9][0-9]{0,4})?")


def _chosen_key(key: SecretStr) -> SecretStr:
    if why := apikeys.fault(key.get_secret_value()):
        raise ValueError(why)
    return key


def _hard_to_guess(key: SecretStr) -> SecretStr:
    if why := apikeys.weakness(key.get_secret_value()):
        raise ValueError(f"{why}: everything is open to whoever guesses it (`openssl rand -hex 24` makes a good one)")
    return key


def _broker(url: str) -> str:
    urls.parse_broker(url, Path())
    return url


def _address(text: str) -> str:
    urls.host_and_port(text)
    return text


def _names(text: str) -> str:
    if not all(0 < len(name.strip()) <= MODEL_NAME for name in text.split(",")):
        raise ValueError(f"must be names of 1 to {MODEL_NAME} characters, with commas between them")
    return text


def _origins(text: str) -> str:
    for origin in text.split(","):
        one = origin.strip()
        # Browsers leave the port of the scheme out.
        usual = one.endswith(":443" if one.startswith("https:") else ":80")
        if usual or not _ORIGIN.fullmatch(one) or not _is_http(one):
            raise ValueError("must be origins as https://app.example.org, in lower case, without path; not *")
    return text


def _lower(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


def _cores() -> int:
    """Return the cores that this process may use if the system knows them, otherwise all."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _is_http(url: str) -> bool:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        return False
    return usable and url.isprintable() and " " not in url


def _node_url(url: str) -> str:
    if not _is_http(url) or set(url.partition("://")[2]) & set("/?#"):
        raise ValueError("must be http:// or https://, a host, and maybe a port, with nothing behind them")
    return url


def _engine_url(url: str) -> str:
    if not _is_http(url):
        raise ValueError("must be an http:// or https:// URL")
    if "@" in urlsplit(url).netloc:
        raise ValueError("must not contain a user or password; a key has its own setting")
    return url


def _engine_key(key: SecretStr) -> SecretStr:
    value = key.get_secret_value()
    if not value.isascii() or not value.isprintable() or " " in value:
        raise ValueError("must be printable ASCII characters without spaces")
    return key


class EngineSettings(msgspec.Struct, frozen=True):
    """The address of an engine, and the bounds of its calls; without a URL it is the bundled one."""

    url: str | None
    key: SecretStr | None
    model: str | None
    #: Seconds for one whole call.
    timeout: float
    #: Calls at the same time.
    concurrency: int


ChosenKey = Annotated[SecretStr, AfterValidator(_chosen_key)]
EngineUrl = Annotated[str, AfterValidator(_engine_url)]
EngineKey = Annotated[SecretStr, AfterValidator(_engine_key)]


class ServiceSettings(BaseSettings):
    """Settings that apply to every log."""

    host: str = Field(default="127.0.0.1", min_length=1, description="Address that the HTTP server listens on.")
    port: int = Field(
        default=8000, ge=0, le=65535, description="Port that the HTTP server listens on; 0 takes a free one."
    )
    data: Path = Field(default=Path("data"), description="Directory of everything that is kept on this machine.")
    broker: Annotated[str, AfterValidator(_broker)] = Field(
        default="embedded://",
        description="The log: `embedded://` (under the data directory), `embedded://DIR`, either with `?sync=0` to "
        "acknowledge before the disk has the bytes, or `kafka://a:9092,b:9092`.",
    )
    database_url: Annotated[str, AfterValidator(urls.database_url)] | None = Field(
        default=None,
        repr=False,
        description="Database of organizations, projects and keys: `sqlite:///FILE` or "
        "`postgresql://user:password@host/name`; by default a SQLite file in the data directory.",
    )
    advertise: Annotated[str, AfterValidator(_node_url)] | None = Field(
        default=None,
        description="URL at which other nodes on the same Kafka reach this one; by default HOST and PORT.",
    )
    partitions: int | None = Field(
        default=None,
        ge=1,
        le=4096,
        description=f"Partitions of every topic, fixed once they are made; by default {EMBEDDED_PARTITIONS} on the "
        f"embedded log and {KAFKA_PARTITIONS} on Kafka.",
    )
    model: str | None = Field(
        default=None,
        min_length=1,
        description="Sound model for new sessions, by name or directory; by default the one chosen by `earshot "
        "models use`, otherwise yamnet-ced.",
    )
    chunk_limit: int | None = Field(
        default=None,
        ge=catalog.DEFAULT_CHUNK_LIMIT,
        le=64 * MIB,
        description="Largest chunk under `/sense/api/v1` in bytes of audio (elsewhere it is 1 MiB); by default "
        f"{ROOMY_CHUNK_LIMIT} on the embedded log if BODY_BYTES and QUEUE_BYTES allow it, which is enough for the "
        f"vendor's clients, otherwise {catalog.DEFAULT_CHUNK_LIMIT}.",
    )
    session_idle_seconds: int = Field(
        default=3600, ge=1, description="A session that gets no chunk for longer than this is deleted."
    )
    audio_retention_seconds: int = Field(
        default=86400,
        ge=1,
        description="How long audio and results are kept on the log; tables keep results of live sessions.",
    )
    bootstrap_project_key: ChosenKey | None = Field(
        default=None, description="Key of the demo project made at the first start: 20 or more printable characters."
    )
    bootstrap_org_key: ChosenKey | None = Field(
        default=None,
        description="Key of the demo organization made at the first start: 20 or more printable characters.",
    )
    key_cache_seconds: int = Field(
        default=60,
        ge=0,
        le=60,
        description="How long a node believes the verdict on a key after another one changed it, at most 60: a "
        "revoked key works nowhere for longer while the database answers. 0 asks it each time.",
    )
    queue_bytes: int = Field(
        default=64 * MIB,
        ge=1,
        description="Bytes that may wait for the log before uploads are answered 503. Chunks of one project may be "
        "half of them; parts of recordings may be a quarter, and wait for each other in turn by project.",
    )
    project_sessions: int = Field(
        default=10_000,
        ge=1,
        description="Sessions of one project that a node has open at a time: until they are analysed to their end. "
        "Past it new ones are answered 503.",
    )
    project_jobs: int = Field(
        default=1000,
        ge=1,
        description="Jobs of one project that a node has in hand at a time: until they are done and in the ledger. "
        "Past it new ones are answered 503.",
    )
    poll_seconds: float = Field(
        default=9.0,
        ge=0,
        le=300,
        description="How long a status read waits for a result before it answers without one.",
    )
    workers: int = Field(
        default_factory=_cores,
        ge=1,
        le=1024,
        description="Processes that run the model; by default one for each core.",
    )
    log_level: Annotated[Literal["debug", "info", "warning", "error"], BeforeValidator(_lower)] = Field(
        default="info", description="Least severe event that is logged: `debug`, `info`, `warning` or `error`."
    )
    log_format: Annotated[Literal["json", "console"], BeforeValidator(_lower)] = Field(
        default="json", description="Form of the log: `json` lines, or `console` for people."
    )
    job_retention_seconds: int = Field(
        default=30 * 86400, ge=1, description="How long a job and its result are kept after it was accepted."
    )
    job_audio_seconds: int = Field(
        default=0,
        ge=0,
        description="How long the audio of a job is kept after it was accepted, so that it can be heard and seen, and "
        "a voice of its transcript be registered: at most EARSHOT_AUDIO_RETENTION_SECONDS, where its project does not "
        "choose another time. By default it goes when the job is done.",
    )
    job_reads_need_key: bool = Field(
        default=False,
        description="Ask for the project's key before the event stream and the captions of a job are read. Public "
        "clients of the vendor send none there: to them a job's id is enough.",
    )
    sessions_need_key: bool = Field(
        default=False,
        description="Ask for the project's key in every request about a session: reads, uploads, changes and deletion. "
        "By default a session's id is enough. Public clients of the vendor send the key with each of them.",
    )
    analyze_limit: int = Field(
        default=32 * MIB,
        ge=1,
        le=256 * MIB,
        description="Largest recording in the JSON of `/api/v1/analyze`, in bytes of audio.",
    )
    upload_limit: int = Field(
        default=4096 * MIB, ge=1, description="Largest upload to `/api/v1/analyze_file` in bytes."
    )
    upload_idle_seconds: float = Field(
        default=30.0,
        gt=0,
        le=3600,
        description="A request that sends nothing for longer than this, or takes nothing of its answer, is given up.",
    )
    upload_slowest: int = Field(
        default=4096,
        ge=1,
        description="Bytes a second below which a body is given up, once EARSHOT_UPLOAD_IDLE_SECONDS are over.",
    )
    body_bytes: int = Field(
        default=128 * MIB,
        ge=1,
        description="Memory for bodies that are arriving; one project gets a quarter. Further ones are answered 503.",
    )
    cors_origins: Annotated[str, AfterValidator(_origins)] | None = Field(
        default=None,
        description="Origins, with commas between them, whose pages may call the service from a browser: "
        "`https://app.example.org`. Each exactly as browsers send it; by default none.",
    )
    dashboard: bool = Field(
        default=True, description="Serve the dashboard, and print a link to it at the start; `false` switches it off."
    )
    docs: bool = Field(
        default=True, description="Serve `/docs`, `/openapi.json` and `/asyncapi.json`; `false` switches them off."
    )
    connections: int = Field(
        default=16384, ge=1, description="Connections of clients at the same time; further ones are answered 503."
    )
    connections_per_address: int | None = Field(
        default=None,
        ge=1,
        description="Connections of one address (IPv6: of one /64); behind a reverse proxy all have its address.",
    )
    key_tries: float = Field(
        default=100.0,
        gt=0,
        description="Unknown keys a second that are looked up for one address (IPv6: one /64); ten times as many for "
        "all together.",
    )
    trusted_proxies: int = Field(
        default=0,
        ge=0,
        le=16,
        description="Reverse proxies between clients and this service, each of which appends to `X-Forwarded-For`: a "
        "client's address is that many entries from the right. With 0 it is the address that connects.",
    )
    uploads: int = Field(default=256, ge=1, description="Uploads of recordings that are received at a time.")
    project_uploads: int = Field(
        default=64, ge=1, description="Uploads of one project, or organization, that are received at a time."
    )
    upload_spool_bytes: int = Field(
        default=32 * 1024 * MIB,
        ge=1,
        description="Bytes of uploads that are kept on the disk while they arrive, and at least two of the largest; "
        "one project may have half of them.",
    )
    upload_free_bytes: int = Field(
        default=256 * MIB, ge=0, description="Bytes that uploads leave free on the disk: past it they are answered 503."
    )
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
    keep_voice: bool = Field(
        default=False,
        description="Keep the recordings that speakers were registered with, so that another model can learn them.",
    )
    voices_url: str | None = Field(
        default=None,
        min_length=1,
        repr=False,
        description="Where such recordings are kept: a directory, by default `voices` in the data directory, or a URL "
        "that fsspec knows, such as `s3://bucket/prefix`.",
    )
    admin_key: Annotated[ChosenKey, AfterValidator(_hard_to_guess)] | None = Field(
        default=None,
        description="Key of the operator's interface `/admin/v1`, 20 or more printable characters, 8 or more of them "
        "different; without one it is not there.",
    )

    admin_listen: Annotated[str, AfterValidator(_address)] | None = Field(
        default=None,
        description="Address (`host:port`) at which `/admin/v1` answers, and then nowhere else; by default it answers "
        "beside everything else, at HOST and PORT. `/metrics`, and what `/readyz` waits for, move there with it.",
    )


class Settings(KafkaSettings, ServiceSettings):
    """Every setting, with its default; the variable is the field's name in capitals after EARSHOT_."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, env_ignore_empty=True, hide_input_in_errors=True)

    @model_validator(mode="after")
    def _fits(self) -> Settings:
        queued, arriving = _room_for(self.chunk_bytes)
        if self.queue_bytes < queued:
            raise ValueError(f"{PREFIX}QUEUE_BYTES: must hold the largest chunk, {queued} bytes")
        if self.body_bytes < arriving:
            raise ValueError(f"{PREFIX}BODY_BYTES: must hold four of the largest chunks, {arriving} bytes")
        if self.bootstrap_org_key is not None and self.bootstrap_org_key == self.bootstrap_project_key:
            raise ValueError(f"{PREFIX}BOOTSTRAP_ORG_KEY: must differ from {PREFIX}BOOTSTRAP_PROJECT_KEY")
        if self.admin_key is not None and self.admin_key in (self.bootstrap_project_key, self.bootstrap_org_key):
            raise ValueError(f"{PREFIX}ADMIN_KEY: must differ from the keys of the demo project and organization")
        if self.admin_listen is not None and self.admin_key is None:
            raise ValueError(f"{PREFIX}ADMIN_LISTEN: needs {PREFIX}ADMIN_KEY too")
        return self

    @property
    def log(self) -> Broker:
        """The log; the embedded one is in `log` under the data directory by default."""
        return urls.parse_broker(self.broker, self.data / "log")

    @property
    def database(self) -> str:
        """URL of the control plane's database with its asynchronous driver."""
        return self.database_url or f"sqlite+aiosqlite:///{self.data / 'earshot.db'}"

    @property
    def speech(self) -> EngineSettings:
        return EngineSettings(
            self.speech_url, self.speech_key, self.speech_model, self.speech_timeout, self.speech_concurrency
        )

    @property
    def allowed_origins(self) -> tuple[str, ...]:
        """Origins whose pages may call the service from a browser."""
        return tuple(origin.strip() for origin in self.cors_origins.split(",")) if self.cors_origins else ()

    @property
    def allowed_speech_models(self) -> frozenset[str]:
        """Models that jobs may ask of the speech engine besides its own."""
        return frozenset(name.strip() for name in self.speech_models.split(",")) if self.speech_models else frozenset()

    @property
    def caption(self) -> EngineSettings:
        return EngineSettings(
            self.caption_url, self.caption_key, self.caption_model, self.caption_timeout, self.caption_concurrency
        )

    @property
    def translation(self) -> EngineSettings:
        """The engine that translates; its protocol names no model."""
        return EngineSettings(
            self.translation_url, self.translation_key, None, self.translation_timeout, self.translation_concurrency
        )

    @property
    def speaker(self) -> EngineSettings:
        return EngineSettings(
            self.speaker_url, self.speaker_key, self.speaker_model, self.speaker_timeout, self.speaker_concurrency
        )

    @property
    def secrets(self) -> list[str]:
        """Every key that is set; none may be shown."""
        return [value.get_secret_value() for _, value in self if isinstance(value, SecretStr)]

    @property
    def chunk_bytes(self) -> int:
        """Bytes of audio in the largest chunk under `/sense/api/v1`."""
        queued, arriving = _room_for(ROOMY_CHUNK_LIMIT)
        roomy = self.log.kind == "embedded" and self.queue_bytes >= queued and self.body_bytes >= arriving
        return self.chunk_limit or (ROOMY_CHUNK_LIMIT if roomy else catalog.DEFAULT_CHUNK_LIMIT)

    @property
    def partition_count(self) -> int:
        """Partitions of every topic."""
        by_broker = EMBEDDED_PARTITIONS if self.log.kind == "embedded" else KAFKA_PARTITIONS
        return self.partitions or by_broker


def _room_for(chunk_limit: int) -> tuple[int, int]:
    """Return the bytes that queue and bodies need for chunks of this size."""
    return catalog.record_limit(chunk_limit), 4 * chunk_body(chunk_limit)


def _is_secret(kind: object) -> bool:
    return kind is SecretStr or any(map(_is_secret, get_args(kind)))


#: Fields that may be given by file, as `EARSHOT_..._FILE`; the URL of a database may have a password in it.
SECRETS: Final = (
    *(field for field, about in Settings.model_fields.items() if _is_secret(about.annotation)),
    "database_url",
)


def load() -> Settings:
    """Read the settings from the environment and from files of secrets; warn on stderr about unknown variables.

    Raises:
        SystemExit: 2, after one line on stderr for each wrong setting.
    """
    for warning in typing_errors(os.environ):
        print(f"earshot: {warning}", file=sys.stderr)
    environment = {name.upper(): value for name, value in os.environ.items()}
    secrets, wrong = {}, []
    for field in SECRETS:
        try:
            if environment.get(variable(field + secret_files.SUFFIX)):
                secrets[field] = secret_files.secret(field, environment)
        except WrongSetting as error:
            wrong.append(str(error))
    try:
        settings = Settings(**secrets)  # type: ignore[arg-type]
    except ValidationError as error:
        wrong += faults(error)
    if not wrong:
        return settings
    for line in wrong:
        print(f"earshot: {line}", file=sys.stderr)
    raise SystemExit(2)


def typing_errors(names: Iterable[str]) -> list[str]:
    """Return a line for each of `names` that looks like a setting but is not one."""
    secrets = (*SECRETS, *_COMMAND_SECRETS)
    fields = {variable(field) for field in (*Settings.model_fields, *secrets)}
    fields |= {variable(field + secret_files.SUFFIX) for field in secrets}
    lines = []
    for name in sorted(names):
        if name.upper() in fields or name in _COMMANDS or not name.startswith(PREFIX) or name.startswith(_TESTS):
            continue
        near = difflib.get_close_matches(
            name.removeprefix(PREFIX), [field.removeprefix(PREFIX) for field in sorted(fields)], n=1
        )
        lines.append(f"{name} is not a setting" + (f"; did you mean {PREFIX}{near[0]}?" if near else ""))
    return lines


def faults(error: ValidationError) -> list[str]:
    """Return a line for each fault: the variable and what is wrong with it, never its value, which may be secret."""
    lines = []
    for fault in error.errors(include_url=False, include_context=False, include_input=False):
        message = fault["msg"].removeprefix("Value error, ").replace("Input should", "must")
        name = f"{variable(str(fault['loc'][0]))}: " if fault["loc"] else ""
        lines.append(name + message)
    return lines
