"""The log records of jobs, one union per topic."""

import msgspec

from topics.hearing import Hearing
from topics.jobs.options import Options, Service
from topics.records import Record

#: Maximum size of the audio in one `Part`.
PART_BYTES = 1024 * 1024
#: Approximate payload of one `Portion`, which holds whole windows or segments.
PORTION_BYTES = 256 * 1024


class Source(msgspec.Struct, frozen=True, array_like=True):
    """The uploaded file."""

    #: For the decoder, in the form that `topics.media.parse` accepts; detected by content unless the audio is raw.
    content_type: str
    #: Container or "raw": `wav`, `mp3`, `flac`, `ogg`, …
    format: str
    size: int
    #: Sample rate (Hz) and channels, as detected by the probe.
    rate: int
    channels: int
    filename: str = ""
    #: The client's declaration, or "".
    declared: str = ""


# --- earshot.job.command.v1, key = job id ---------------------------------------------------------------------------


class Part(Record, frozen=True, tag="part"):
    """One piece of a job's audio, at most PART_BYTES; parts precede the acceptance of their upload."""

    command: str
    #: Identifies one attempt to upload; a repeated request with the same Idempotency-Key is another attempt.
    upload: str
    #: 0, 1, ...
    number: int
    data: bytes


class Accepted(Record, frozen=True, tag="accept"):
    """The audio is complete; the job can start."""

    command: str
    upload: str
    #: Number of parts of the upload.
    parts: int
    project: str
    organization: str
    options: Options
    source: Source
    #: The sound model, with the job's own sounds (`topics.hearing.model_with`).
    model: str
    #: BLAKE2b-128 over options and audio: tells a repeated request from another one with the same Idempotency-Key.
    digest: bytes
    #: How long the audio stays readable after acceptance; at least until the job is done.
    keep_audio_ms: int = 0
    hearing: Hearing = Hearing()


class Removed(Record, frozen=True, tag="remove"):
    """The client deleted the job."""

    command: str


class Overdue(Record, frozen=True, tag="overdue"):
    """The sweeper found that the time of the job or of its audio is over; it stays if any command came since."""

    command: str
    #: Offset of the last command that the sweeper saw, -1 if it found no job.
    seen: int
    #: The due time (ms) of the expiry index entry behind this command.
    due: int


JobCommand = Part | Accepted | Removed | Overdue


# --- earshot.job.result.v1, key = job id ----------------------------------------------------------------------------


class Started(Record, frozen=True, tag="start"):
    """A service of a job starts, or restarts after a crash."""

    service: Service
    #: Distinguishes the portions of this run from those of an earlier one.
    run: str
    #: The lives of the processes that started it without progress or a seen end, this run's last.
    lives: tuple[str, ...] = ()
    #: Earlier starts whose process was ended from outside; `lives` does not have them.
    kills: int = 0


class Stopped(Record, frozen=True, tag="stop"):
    """A run was interrupted, but its process lives or was asked to end, so it does not count as a death."""

    service: Service
    run: str
    #: As in `Started`, without this run.
    lives: tuple[str, ...]


class Portion(Record, frozen=True, tag="portion"):
    """A part of a service's result (`topics.jobs.payloads`), in order."""

    service: Service
    run: str
    #: 0, 1, ...
    number: int
    data: bytes
    #: Progress of the service, 0 to 1.
    done: float = 0.0


class Finished(Record, frozen=True, tag="finish"):
    """A service of a job has ended; its results are in the portions of its run."""

    service: Service
    run: str
    portions: int
    #: None: success.
    error: str | None = None
    #: Duration of the analysed audio, for billing.
    audio_ms: int = 0
    #: The model: `name@sha256 prefix`, or the engine's model name.
    model: str = ""
    warnings: tuple[str, ...] = ()
    #: How much of it is silence that stands for gaps, which is not billed.
    silence_ms: int = 0


class Billed(Record, frozen=True, tag="bill"):
    """These services of the job are in the ledger."""

    services: tuple[Service, ...]


JobResult = Started | Stopped | Portion | Finished | Billed
