"""Deployment options of a node."""

from pathlib import Path
from typing import Final

import msgspec

from streams.deliveries.options import DeliveryOptions
from streams.folding.lives import Lives
from topics.tally import Tallies

#: Ten chunks of half a second for each of 2,000 microphones.
AUDIO_CACHE_BYTES: Final = 320 * 1024 * 1024
#: Some 78 hours; half of it holds the longest recording.
PICTURE_BYTES: Final = 1 << 30


class NodeOptions(msgspec.Struct, frozen=True):
    """The options that the service passes to its node."""

    directory: Path
    partitions: int
    #: Whether tables may be missing on purpose.
    tables_left_out: bool = False
    idle_seconds: float = 3600.0
    url: str = "http://127.0.0.1:8000"
    #: Seconds between sweeps of the expiry index.
    sweep_seconds: float = 30.0
    #: Bytes that may wait for the log: parts of recordings, and other commands of one project.
    part_bytes: int = 16 * 1024 * 1024
    share_bytes: int = 32 * 1024 * 1024
    #: Bytes that the files of running jobs leave free on the disk.
    free_bytes: int = 256 * 1024 * 1024
    #: Bytes of audio in memory that wait for analysis, and of the pictures of recordings on the disk.
    audio_cache_bytes: int = AUDIO_CACHE_BYTES
    picture_bytes: int = PICTURE_BYTES
    #: Limits on the unsettled sessions and jobs of one project.
    project_sessions: int = 10_000
    project_jobs: int = 1000
    #: Milliseconds from the acceptance of a job to its removal.
    job_keep_ms: int = 30 * 24 * 3600 * 1000
    #: Files and directories that hold acknowledged data.
    files: tuple[Path, ...] = ()
    deliveries: DeliveryOptions = DeliveryOptions()
    #: Counts what the other lanes of the machine have, too, if there are any.
    tallies: Tallies | None = None
    lives: Lives = msgspec.field(default_factory=Lives)
