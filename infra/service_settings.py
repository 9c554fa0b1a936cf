"""Settings of the service itself: its addresses, what it keeps, and its bounds."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr
from pydantic_settings import BaseSettings

from infra import urls
from streams import cores
from topics import apikeys, catalog

MIB: Final = 1024 * 1024
EMBEDDED_PARTITIONS: Final = 4
KAFKA_PARTITIONS: Final = 16
#: Longest time that rows and topics can hold, in seconds: some 300 years.
LONGEST_S: Final = 10**10
#: The vendor's clients send pieces of 5,000,000 bytes. Kafka's topics are sized for their largest record.
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


def _from_home(path: Path) -> Path:
    return Path(os.path.expanduser(path))  # Unlike the method of `Path`, it accepts the name of an unknown user.


def _broker(url: str) -> str:
    urls.parse_broker(url, Path())
    return url


def _address(text: str) -> str:
    urls.host_and_port(text)
    return text


def _origins(text: str) -> str:
    for origin in text.split(","):
        one = origin.strip()
        # Browsers leave out the default port of the scheme.
        usual = one.endswith(":443" if one.startswith("https:") else ":80")
        if usual or not _ORIGIN.fullmatch(one) or not urls.is_http(one):
            raise ValueError("must be origins as https://app.example.org, in lower case, without path; not *")
    return text


def _node_url(url: str) -> str:
    if not urls.is_http(url) or set(url.partition("://")[2]) & set("/?#"):
        raise ValueError("must be http:// or https://, a host, and maybe a port, and nothing more")
    return url


ChosenKey = Annotated[SecretStr, AfterValidator(_chosen_key)]


class ServiceSettings(BaseSettings):
    """Settings that apply with any log."""

    host: str = Field(default="127.0.0.1", min_length=1, description="Address that the HTTP server listens on.")
    port: int = Field(
        default=8000, ge=0, le=65535, description="Port that the HTTP server listens on; 0 takes a free one."
    )
    data: Annotated[Path, AfterValidator(_from_home)] = Field(
        default=Path("data"), description="Directory of all data on this machine."
    )
    broker: Annotated[str, AfterValidator(_broker)] = Field(
        default="embedded://",
        description="The log: `embedded://` (in the data directory), `embedded://DIR`, or `kafka://a:9092,b:9092`. "
        "`?sync=0`: acknowledge before the embedded log is on disk.",
    )
    database_url: Annotated[str, AfterValidator(urls.database_url)] | None = Field(
        default=None,
        repr=False,
        description="Database of organizations, projects and keys: `sqlite:///FILE` or "
        "`postgresql://user:password@host/name`; by default a SQLite file in the data directory.",
    )
    advertise: Annotated[str, AfterValidator(_node_url)] | None = Field(
        default=None, description="URL at which other nodes on the same Kafka reach this one; by default HOST and PORT."
    )
    partitions: int | None = Field(
        default=None,
        ge=1,
        le=4096,
        description=f"Partitions of every topic, fixed at the first start; by default {EMBEDDED_PARTITIONS} on the "
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
        description="Largest chunk under `/sense/api/v1` in bytes of audio (1 MiB elsewhere). By default "
        f"{ROOMY_CHUNK_LIMIT} on the embedded log if BODY_BYTES and QUEUE_BYTES allow it, which suits the vendor's "
        f"clients, otherwise {catalog.DEFAULT_CHUNK_LIMIT}.",
    )
    session_idle_seconds: int = Field(
        default=3600,
        ge=1,
        le=LONGEST_S,
        description="Seconds without a chunk or a window after which a session is deleted. Seconds in which its audio "
        "waits for its analysis, or in which the service is away, do not count.",
    )
    audio_retention_seconds: int = Field(
        default=86400,
        ge=1,
        le=LONGEST_S,
        description="How long Kafka keeps audio and results. The embedded log keeps them as long as they are needed. "
        "Tables keep results of live sessions.",
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
        description="Seconds that a node caches the check of a key, at most 60. While the database answers, a revoked "
        "key works nowhere for longer. 0 asks it each time.",
    )
    queue_bytes: int = Field(
        default=64 * MIB,
        ge=1,
        description="Bytes that may wait for the log before uploads are answered 503. Chunks of one project may take "
        "half of them, parts of recordings a quarter; projects take turns.",
    )
    project_sessions: int = Field(
        default=10_000,
        ge=1,
        description="Open sessions of one project on a node. A session counts until it is analysed to its end. "
        "Further ones are answered 503.",
    )
    project_jobs: int = Field(
        default=1000,
        ge=1,
        description="Open jobs of one project on a node. A job counts until it is done and in the ledger. Further "
        "ones are answered 503.",
    )
    poll_seconds: float = Field(
        default=9.0,
        ge=0,
        le=300,
        description="How long a status read waits for a result before it answers without one.",
    )
    workers: int = Field(
        default_factory=cores.usable,
        ge=1,
        le=1024,
        description="Processes that run the model; by default one per core, within the quota of the control group.",
    )
    log_level: Annotated[Literal["debug", "info", "warning", "error"], BeforeValidator(str.lower)] = Field(
        default="info", description="Least severe event to log: `debug`, `info`, `warning` or `error`."
    )
    log_format: Annotated[Literal["json", "console"], BeforeValidator(str.lower)] = Field(
        default="json", description="Form of the log: `json` lines, or `console` for people."
    )
    job_retention_seconds: int = Field(
        default=30 * 86400,
        ge=1,
        le=LONGEST_S,
        description="How long a job and its result are kept after its last service ended, in seconds of service.",
    )
    erase_seconds: int = Field(
        default=3 * 3600,
        ge=1,
        le=3 * 3600,
        description="Running time between two rounds that erase deleted data from the files of the data directory: its "
        "bytes are gone after two rounds, six hours, at the latest.",
    )
    job_audio_seconds: int = Field(
        default=0,
        ge=0,
        description="How long the audio of a job is kept after acceptance, to play it, draw it and register its "
        "voices: at most EARSHOT_AUDIO_RETENTION_SECONDS. A project may choose another time. By default the audio is "
        "deleted when the job is done.",
    )
    job_reads_need_key: bool = Field(
        default=False,
        description="Require the project's key to read the event stream and captions of a job. By default its id is "
        "enough, because the vendor's public clients send no key there.",
    )
    sessions_need_key: bool = Field(
        default=False,
        description="Require the project's key in every request about a session: reads, uploads, changes and "
        "deletion. By default a session's id is enough, because the vendor's public clients cochl 1.0.11 to 1.0.13 "
        "send no key with chunks and results.",
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
        description="Seconds after which a request that sends nothing, or reads nothing of its answer, is aborted.",
    )
    upload_slowest: int = Field(
        default=4096,
        ge=1,
        description="Bytes a second below which a body is aborted, after EARSHOT_UPLOAD_IDLE_SECONDS.",
    )
    body_bytes: int = Field(
        default=128 * MIB,
        ge=1,
        description="Bytes of memory for arriving bodies, and for waiting chunks; a project gets a quarter. Then 503.",
    )
    cors_origins: Annotated[str, AfterValidator(_origins)] | None = Field(
        default=None,
        description="Comma-separated origins whose pages may call the service from a browser: "
        "`https://app.example.org`. Each exactly as browsers send it; by default none.",
    )
    dashboard: bool = Field(
        default=True, description="Serve the dashboard, and print a link to it at the start; `false` switches it off."
    )
    docs: bool = Field(
        default=True, description="Serve `/docs`, `/openapi.json` and `/asyncapi.json`; `false` switches them off."
    )
    connections: int = Field(
        default=16384, ge=1, description="Concurrent connections of clients; further ones are answered 503."
    )
    connections_per_address: int | None = Field(
        default=None,
        ge=1,
        description="Connections of one address (IPv6: one /64); behind a reverse proxy, all have its address.",
    )
    key_tries: float = Field(
        default=100.0,
        gt=0,
        description="Unknown keys a second that are looked up for one address (IPv6: one /64); ten times as many in "
        "total.",
    )
    trusted_proxies: int = Field(
        default=0,
        ge=0,
        le=16,
        description="Number of reverse proxies in front of this service. Each appends to `X-Forwarded-For`, so the "
        "client's address is that many entries from the right. 0: the address that connects.",
    )
    uploads: int = Field(default=256, ge=1, description="Concurrent uploads of recordings.")
    project_uploads: int = Field(default=64, ge=1, description="Concurrent uploads of one project or organization.")
    upload_spool_bytes: int = Field(
        default=32 * 1024 * MIB,
        ge=1,
        description="Disk space for arriving uploads in bytes, at least two of the largest; one project may take half "
        "of it.",
    )
    upload_free_bytes: int = Field(
        default=256 * MIB,
        ge=0,
        description="Bytes of disk that uploads, running jobs and pictures of recordings leave free; otherwise uploads "
        "and pictures are answered 503, and jobs wait.",
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
        "different; without one it is off.",
    )
    admin_listen: Annotated[str, AfterValidator(_address)] | None = Field(
        default=None,
        description="Own address (`host:port`) for `/admin/v1`, which then answers nowhere else; by default it "
        "answers at HOST and PORT. `/metrics`, and what `/readyz` waits for, move there with it.",
    )

    @property
    def allowed_origins(self) -> tuple[str, ...]:
        """Origins whose pages may call the service from a browser."""
        return tuple(origin.strip() for origin in self.cors_origins.split(",")) if self.cors_origins else ()
