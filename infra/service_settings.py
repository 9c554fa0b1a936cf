"""Settings of the service itself: how it is reached, what it keeps, and what it takes at a time."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr
from pydantic_settings import BaseSettings

from infra import urls
from topics import apikeys, catalog

MIB: Final = 1024 * 1024
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


def _origins(text: str) -> str:
    for origin in text.split(","):
        one = origin.strip()
        # Browsers leave the port of the scheme out.
        usual = one.endswith(":443" if one.startswith("https:") else ":80")
        if usual or not _ORIGIN.fullmatch(one) or not urls.is_http(one):
            raise ValueError("must be origins as https://app.example.org, in lower case, without path; not *")
    return text


def _lower(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


def _cores() -> int:
    """Return the cores that this process may use if the system knows them, otherwise all."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _node_url(url: str) -> str:
    if not urls.is_http(url) or set(url.partition("://")[2]) & set("/?#"):
        raise ValueError("must be http:// or https://, a host, and maybe a port, with nothing behind them")
    return url


ChosenKey = Annotated[SecretStr, AfterValidator(_chosen_key)]


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

    @property
    def allowed_origins(self) -> tuple[str, ...]:
        """Origins whose pages may call the service from a browser."""
        return tuple(origin.strip() for origin in self.cors_origins.split(",")) if self.cors_origins else ()
