"""The records of jobs on the log, one union a topic."""

import msgspec

from topics.hearing import Hearing
from topics.jobs.options import Options, Service
from topics.records import Record

#: Audio in one `Part`.
PART_BYTES = 1024 * 1024
#: Payload of one `Portion`, about: a portion holds whole windows or segments.
PORTION_BYTES = 256 * 1024


class Source(msgspec.Struct, frozen=True, array_like=True):
    """The uploaded file."""

    #: As `topics.media.parse` reads it: for the decoder, found by content unless the audio is raw.
    content_type: str
    #: Container or "raw": `wav`, `mp3`, `flac`, `ogg`, …
    format: str
    size: int
    #: Hz and count of the source, as the probe found them.
    rate: int
    channels: int
    filename: str = ""
    #: The client's declaration, or "".
    declared: str = ""


# --- earshot.job.command.v1, key = job id ---------------------------------------------------------------------------


class Part(Record, frozen=True, tag="part"):
    """One piece of a job's audio, at most PART_BYTES; parts precede the acceptance of their upload."""

    command: str
    #: One attempt to upload: a request that is repeated under the same Idempotency-Key is another one.
    upload: str
    #: 0, 1, ...
    number: int
    data: bytes


class Accepted(Record, frozen=True, tag="accept"):
    """The audio is complete and the job is to be done."""

    command: str
    upload: str
    #: How many parts the upload has.
    parts: int
    project: str
    organization: str
    options: Options
    source: Source
    #: The sound model, with the job's own sounds (`topics.hearing.model_with`).
    model: str
    #: BLAKE2b-128 over options and audio: distinguishes a repeated request from another one with its Idempotency-Key.
    digest: bytes
    #: The audio stays readable for this long after the acceptance, and until the job is done in any case.
    keep_audio_ms: int = 0
    hearing: Hearing = Hearing()


class Removed(Record, frozen=True, tag="remove"):
    """The client deleted the job."""

    command: str


class Overdue(Record, frozen=True, tag="overdue"):
    """The sweeper found the job's deadline passed; the fold decides, by log time, whether it is true."""

    command: str
    #: A job is kept for this long after its acceptance.
    keep_ms: int
    #: The due time (ms) of the expiry index entry that led here.
    due: int


JobCommand = Part | Accepted | Removed | Overdue


# --- earshot.job.result.v1, key = job id ----------------------------------------------------------------------------


class Started(Record, frozen=True, tag="start"):
    """A service of a job begins, or begins again after a crash."""

    service: Service
    #: Distinguishes the portions of this run from those of an earlier one.
    run: str
    #: How many times it was begun without progress or a seen end, including this run; 0 in records from before this was
    #: counted.
    times: int = 0
    #: How often before its process was ended from outside; `times` does not include these.
    kills: int = 0
    #: The lives of the processes that `times` counts; fewer in records from before they were named.
    lives: tuple[str, ...] = ()


class Stopped(Record, frozen=True, tag="stop"):
    """A run was broken off, but its process lives or was asked to end, so it does not count as a death."""

    service: Service
    run: str
    #: As in `Started`, without this run.
    times: int
    lives: tuple[str, ...] = ()


class Portion(Record, frozen=True, tag="portion"):
    """A part of a service's result (`topics.jobs.payloads`), in order."""

    service: Service
    run: str
    #: 0, 1, ...
    number: int
    data: bytes
    #: How much of the service's work is done, 0 to 1.
    done: float = 0.0


class Finished(Record, frozen=True, tag="finish"):
    """A service of a job has ended; its findings are in the portions of its run."""

    service: Service
    run: str
    portions: int
    #: None: success.
    error: str | None = None
    #: Audio that was analysed, for the bill.
    audio_ms: int = 0
    #: The model: `name@sha256 prefix`, or the engine's model name.
    model: str = ""
    warnings: tuple[str, ...] = ()


class Billed(Record, frozen=True, tag="bill"):
    """The ledger holds these services of the job."""

    services: tuple[Service, ...]


JobResult = Started | Stopped | Portion | Finished | Billed
