"""The usage of services as lines, and the ledger that holds them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from topics.jobs.options import Service


class Charge(msgspec.Struct, frozen=True):
    """One line of the usage ledger; (job, service) is its key."""

    job: str
    service: Service
    project: str
    organization: str
    audio_ms: int
    #: What did the work.
    model: str
    #: When the job was accepted, milliseconds since 1970, log time; its month (UTC) is the one that is billed.
    at_ms: int


class Ledger(Protocol):
    """Where usage is written down."""

    async def record(self, charges: Sequence[Charge]) -> None:
        """Write charges; one that is there already stays as it is.

        Raises:
            DirectoryDown: the store does not answer; either all charges are written or none.
        """
        ...
