"""The deployment settings that the edge reads."""

import ssl
from pathlib import Path
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from app.http.upload_bounds import UploadBounds
from topics.catalog import DEFAULT_CHUNK_LIMIT
from topics.jobs.options import DEFAULT_SPEECH_MODEL

MIB: Final = 1024 * 1024
#: Longest time that rows and topics can hold, in seconds: some 300 years.
LONGEST_S: Final = 10**10


class EdgeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the service that the edge reads as they are; `infra.settings` has them by these fields."""

    session_idle_seconds: Annotated[
        int,
        Meta(
            ge=1,
            le=LONGEST_S,
            description="Seconds without a chunk or a window after which a session is deleted. Seconds in which its "
            "audio waits for its analysis, or in which the service is away, do not count.",
        ),
    ] = 3600
    audio_retention_seconds: Annotated[
        int,
        Meta(
            ge=1,
            le=LONGEST_S,
            description="How long Kafka keeps audio and results. The embedded log keeps them as long as they are "
            "needed. Tables keep results of live sessions.",
        ),
    ] = 86400
    key_cache_seconds: Annotated[
        int,
        Meta(
            ge=0,
            le=60,
            description="Seconds that a node caches the check of a key, at most 60. While the database answers, a "
            "revoked key works nowhere for longer. 0 asks it each time.",
        ),
    ] = 60
    poll_seconds: Annotated[
        float,
        Meta(ge=0, le=300, description="How long a status read waits for a result before it answers without one."),
    ] = 9.0
    job_retention_seconds: Annotated[
        int,
        Meta(
            ge=1,
            le=LONGEST_S,
            description="How long a job and its result are kept after its last service ended, in seconds of service.",
        ),
    ] = 30 * 86400
    job_audio_seconds: Annotated[
        int,
        Meta(
            ge=0,
            description="How long the audio of a job is kept after acceptance, to play it, draw it and register its "
            "voices: at most EARSHOT_AUDIO_RETENTION_SECONDS. A project may choose another time. By default the audio "
            "is deleted when the job is done.",
        ),
    ] = 0
    job_reads_need_key: Annotated[
        bool,
        Meta(
            description="Require the project's key to read the event stream and captions of a job. By default its id "
            "is enough, because the vendor's public clients send no key there."
        ),
    ] = False
    sessions_need_key: Annotated[
        bool,
        Meta(
            description="Require the project's key in every request about a session: reads, uploads, changes and "
            "deletion. By default a session's id is enough, because the vendor's public clients cochl 1.0.11 to 1.0.13 "
            "send no key with chunks and results."
        ),
    ] = False
    analyze_limit: Annotated[
        int,
        Meta(ge=1, le=256 * MIB, description="Largest recording in the JSON of `/api/v1/analyze`, in bytes of audio."),
    ] = 32 * MIB
    upload_limit: Annotated[int, Meta(ge=1, description="Largest upload to `/api/v1/analyze_file` in bytes.")] = (
        4096 * MIB
    )
    upload_idle_seconds: Annotated[
        float,
        Meta(
            gt=0,
            le=3600,
            description="Seconds after which a request that sends nothing, or reads nothing of its answer, is aborted.",
        ),
    ] = 30.0
    upload_slowest: Annotated[
        int, Meta(ge=1, description="Bytes a second below which a body is aborted, after EARSHOT_UPLOAD_IDLE_SECONDS.")
    ] = 4096
    body_bytes: Annotated[
        int,
        Meta(
            ge=1,
            description="Bytes of memory for arriving bodies, and for waiting chunks; a project gets a quarter. Then "
            "503.",
        ),
    ] = 128 * MIB
    dashboard: Annotated[
        bool, Meta(description="Serve the dashboard, and print a link to it at the start; `false` switches it off.")
    ] = True
    docs: Annotated[
        bool, Meta(description="Serve `/docs`, `/openapi.json` and `/asyncapi.json`; `false` switches them off.")
    ] = True
    key_tries: Annotated[
        float,
        Meta(
            gt=0,
            description="Unknown keys a second that are looked up for one address (IPv6: one /64); ten times as many "
            "in total.",
        ),
    ] = 100.0
    uploads: Annotated[int, Meta(ge=1, description="Concurrent uploads of recordings.")] = 256
    project_uploads: Annotated[int, Meta(ge=1, description="Concurrent uploads of one project or organization.")] = 64
    upload_spool_bytes: Annotated[
        int,
        Meta(
            ge=1,
            description="Disk space for arriving uploads in bytes, at least two of the largest; one project may take "
            "half of it.",
        ),
    ] = 32 * 1024 * MIB
    upload_free_bytes: Annotated[
        int,
        Meta(
            ge=0,
            description="Bytes of disk that uploads, running jobs and pictures of recordings leave free; otherwise "
            "uploads and pictures are answered 503, and jobs wait.",
        ),
    ] = 256 * MIB


class EdgeOptions(EdgeSettings, frozen=True, kw_only=True):
    """The settings of the edge, and what follows from other ones; read once."""

    #: Signs page tokens, and derives ids of jobs and sessions from those of clients (16 to 64 bytes). All nodes of a
    #: deployment share it, and it outlives restarts.
    secret: bytes
    #: Directory for the audio of jobs and speakers while it arrives.
    spool: Path
    #: Bytes of decoded data in a chunk at `/sense/api/v1`; `/audio_sessions` keeps the contract's 1 MiB.
    chunk_limit: int = DEFAULT_CHUNK_LIMIT
    #: Digest of the operator's key (`topics.apikeys.digest`); None disables the operator's interface.
    admin_key: bytes | None = None
    #: The operator's interface is a separate application at another address (`app.state.operator`).
    admin_apart: bool = False
    #: Speech models that a job may name; the engine's key is the operator's.
    speech_models: frozenset[str] = frozenset({DEFAULT_SPEECH_MODEL})
    #: Whom to trust among other nodes that use TLS; None for Python's own authorities.
    trust: ssl.SSLContext | None = None
    #: Log one debug line for each accepted chunk.
    log_chunks: bool = False
    #: Other origins whose browser programs may call the service.
    cors_origins: tuple[str, ...] = ()

    @property
    def upload_bounds(self) -> UploadBounds:
        spool = max(self.upload_spool_bytes, 2 * self.upload_limit)
        return UploadBounds(self.uploads, self.project_uploads, spool, self.upload_free_bytes)

    @property
    def keep_audio_seconds(self) -> int:
        """How long a job's audio stays readable after acceptance, once the job is done."""
        return min(self.job_audio_seconds, self.audio_retention_seconds)

    @property
    def limits(self) -> dict[str, int | float | bool]:
        """Return the limits that the documents publish."""
        return {
            "contract_chunk_limit": DEFAULT_CHUNK_LIMIT,
            "chunk_limit": self.chunk_limit,
            "analyze_limit": self.analyze_limit,
            "upload_limit": self.upload_limit,
            "poll_seconds": self.poll_seconds,
            "upload_idle_seconds": self.upload_idle_seconds,
            "key_cache_seconds": self.key_cache_seconds,
            "session_idle_seconds": self.session_idle_seconds,
            "job_keep_seconds": self.job_retention_seconds,
            "job_reads_need_key": self.job_reads_need_key,
            "sessions_need_key": self.sessions_need_key,
            "keep_audio_seconds": self.keep_audio_seconds,
            "longest_keep_audio_seconds": self.audio_retention_seconds,
        }
