"""Decoders of the rows of jobs, which have the keys of `topics.keys`."""

from typing import Final

from topics.jobs.records import Accepted
from topics.jobs.rules import JobHead
from topics.rows import RowDecoder

head: Final = RowDecoder[JobHead](JobHead).decode
accepted: Final = RowDecoder[Accepted](Accepted).decode
