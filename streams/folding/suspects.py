"""What was in work when a process died: it is tried again with care, and counted on the log.

A service of a job is a suspect if it was unfinished when its partition came, usually after the death of its owner. The
log counts each attempt before it begins. Suspects run one at a time, so that an innocent one is not counted three times
together with the guilty one. Everything else runs beside them.
"""

from __future__ import annotations

import asyncio


class Suspects:
    """The turn of the suspects of a node. Loop only."""

    def __init__(self) -> None:
        #: Held by the suspected service that runs.
        self.job_turn = asyncio.Lock()
