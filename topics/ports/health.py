"""The ports of health probes."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, Literal, NamedTuple, Protocol

#: Headers of the liveness probe: the id of the process that answers, whether its stand-by tables have what a takeover
#: needs, and what nodes ask each other about a third one.
PROCESS: Final = "earshot-process"
STANDBYS: Final = "earshot-standbys"
WITNESS: Final = "earshot-witness"

#: Problems that do not stop requests. Public, so they contain no names.
Note = Literal[
    "writes are refused: the disk is full",
    "records may be lost",
    "a partition has stopped",
    "a lane has failed",
    "a table was rebuilt",
    "damaged tables were set aside",
    "records were set aside",
    "records were removed before they were read",
    "the log does not keep what was promised",
    "the database fails",
    "another sound model stands in for the one that cannot be used",
    "uploads are refused: the disk is nearly full",
    "uploads are refused: their directory is missing",
]


class Reading(NamedTuple):
    """A number for the metrics: a counter since the start if its name ends in `_total`, and a gauge otherwise."""

    name: str
    help: str
    value: float
    labels: Mapping[str, str] = MappingProxyType({})


class Health(Protocol):
    """The health of this process, for the probes."""

    def alive(self) -> str | None:
        """Return None while the process works, otherwise why it is about to stop."""

    def ready(self) -> str | None:
        """Return None if requests can be served, otherwise the reason."""

    def is_behind(self) -> bool:
        """Return whether stand-by tables of this node are not yet what a takeover needs."""

    def notes(self) -> Sequence[Note]:
        """Return problems that do not stop requests, worst first; `Nodes.facts` has the details."""
