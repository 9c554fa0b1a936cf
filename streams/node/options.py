"""What a node needs to know of its deployment."""

from pathlib import Path

import msgspec

from streams.folding.lives import Lives


class NodeOptions(msgspec.Struct, frozen=True):
    """What a node needs to know of its deployment."""

    directory: Path
    partitions: int
    idle_seconds: float = 3600.0
    workers: int = 1
    url: str = "http://127.0.0.1:8000"
    #: Seconds between looks at the expiry index.
    sweep_seconds: float = 30.0
    #: Bytes of parts of recordings that may wait for the log, and of all else that one project sends.
    part_bytes: int = 16 * 1024 * 1024
    share_bytes: int = 32 * 1024 * 1024
    #: Sessions and jobs of one project that are not settled, at most.
    project_sessions: int = 10_000
    project_jobs: int = 1000
    #: A job is removed so many milliseconds after its acceptance.
    job_keep_ms: int = 30 * 24 * 3600 * 1000
    #: Files and directories without which what is acknowledged is lost.
    files: tuple[Path, ...] = ()
    lives: Lives = msgspec.field(default_factory=Lives)
