"""The deployment settings that the edge reads."""

from pathlib import Path

import msgspec

from app.http.upload_bounds import UploadBounds
from topics.catalog import DEFAULT_CHUNK_LIMIT
from topics.jobs.options import DEFAULT_SPEECH_MODEL


class EdgeOptions(msgspec.Struct, frozen=True):
    """Settings of the edge, read once."""

    #: Signs page tokens, and derives ids of jobs and sessions from those of clients (16 to 64 bytes). All nodes of a
    #: deployment share it, and it outlives restarts.
    secret: bytes
    #: Directory for the audio of jobs and speakers while it arrives.
    spool: Path
    #: Bytes of decoded data in a chunk at `/sense/api/v1`; `/audio_sessions` keeps the contract's 1 MiB.
    chunk_limit: int = DEFAULT_CHUNK_LIMIT
    #: Bytes of audio in a job sent as JSON, which is held in memory.
    analyze_limit: int = 32 * 1024 * 1024
    #: Bytes of a whole multipart body, which goes to the spool.
    upload_limit: int = 4 * 1024 * 1024 * 1024
    #: An upload that sends nothing for this long is aborted.
    upload_idle_seconds: float = 30.0
    #: After that time, an upload slower than this is aborted (bytes per second).
    upload_slowest: int = 4096
    #: Memory for arriving bodies, except those that go to the spool.
    body_bytes: int = 128 * 1024 * 1024
    upload_bounds: UploadBounds = UploadBounds()
    #: A waiting read answers with the current state after this long; some clients give up at 10 s.
    poll_seconds: float = 9.0
    #: Validity of a verdict on a key.
    key_cache_seconds: float = 60.0
    #: Look-ups of unknown keys per second for one address; ten times as many in total.
    key_tries: float = 100.0
    #: Digest of the operator's key (`topics.apikeys.digest`); None disables the operator's interface.
    admin_key: bytes | None = None
    #: The operator's interface is a separate application at another address (`app.state.operator`).
    admin_apart: bool = False
    #: Speech models that a job may name; the engine's key is the operator's.
    speech_models: frozenset[str] = frozenset({DEFAULT_SPEECH_MODEL})
    #: How long a job's audio stays readable after acceptance, once the job is done.
    keep_audio_ms: int = 0
    #: The longest such time that a project may choose.
    longest_keep_audio_ms: int = 24 * 3600 * 1000
    #: The event stream and the captions of a job require the key of its project too.
    job_reads_need_key: bool = False
    #: All requests about a session require the key of its project too.
    sessions_need_key: bool = False
    #: Log one debug line for each accepted chunk.
    log_chunks: bool = False
    #: How long sessions without chunks, and jobs, are kept; for the documents.
    session_idle_seconds: int = 3600
    job_keep_seconds: int = 30 * 86400
    #: Serve the public pages beside the interface: the dashboard, and the documents.
    dashboard: bool = True
    docs: bool = True
    #: Other origins whose browser programs may call the service.
    cors_origins: tuple[str, ...] = ()

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
            "job_keep_seconds": self.job_keep_seconds,
            "job_reads_need_key": self.job_reads_need_key,
            "sessions_need_key": self.sessions_need_key,
            "keep_audio_seconds": self.keep_audio_ms // 1000,
            "longest_keep_audio_seconds": self.longest_keep_audio_ms // 1000,
        }
