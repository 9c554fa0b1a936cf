"""What health probes ask."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

#: What an operator has to look at while requests are served. Anybody may read it: nothing here names anything.
Note = Literal[
    "records may be lost",
    "a table was rebuilt",
    "damaged tables were set aside",
    "records were set aside",
    "the database fails",
    "uploads are refused: the disk is nearly full",
    "uploads are refused: their directory is missing",
]


class Health(Protocol):
    """What the probes ask."""

    def alive(self) -> str | None:
        """Return None while the process works, else why it is about to stop."""

    def ready(self) -> str | None:
        """Return None when requests can be served, else what is waited for."""

    def notes(self) -> Sequence[Note]:
        """Return what is wrong although requests can be served, the worst first; `Nodes.facts` has the details."""
