"""Encodes and decodes records: one version byte, then msgpack, as for rows."""

from collections.abc import Callable
from typing import Final

from topics import rows
from topics.jobs.records import JobCommand, JobResult
from topics.records import Parked, Record
from topics.rows import Decoder
from topics.sessions.records import SessionCommand

VERSION: Final = rows.VERSION

encode: Final[Callable[[Record], bytes]] = rows.encode
decode_command: Final = Decoder[SessionCommand](SessionCommand, "record").decode
decode_job_command: Final = Decoder[JobCommand](JobCommand, "record").decode
decode_job_result: Final = Decoder[JobResult](JobResult, "record").decode
decode_parked: Final = Decoder[Parked](Parked, "record").decode
