"""Decoders of the rows of jobs, which have the keys of `topics.keys`."""

from typing import Final

from topics.jobs.records import Accepted
from topics.jobs.rules import JobHead
from topics.rows import Decoder

head: Final = Decoder[JobHead](JobHead).optional
accepted: Final = Decoder[Accepted](Accepted).optional
