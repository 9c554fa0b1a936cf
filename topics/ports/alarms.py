"""Alarms on this node, the rules that make them, and where they go."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Literal, Protocol

import msgspec

from topics.alarms.alarms import Alarm, Delivery
from topics.alarms.rules import AlarmRule, StoredRule
from topics.keys import LATEST_MS


class Destination(msgspec.Struct, frozen=True):
    """Where a project's alarms are sent."""

    id: str
    project: str
    name: str
    kind: Literal["webhook", "mqtt", "ntfy"]
    #: Without user and password.
    url: str
    enabled: bool
    #: Why it was switched off by the service.
    fault: str | None
    #: Secrets of signatures, the newest first; user, password or token of brokers and ntfy.
    secrets: tuple[str, ...] = ()
    user: str | None = None
    password: str | None = None
    #: What else the kind has, as `base` of MQTT topics.
    options: Mapping[str, str] = {}


class AlarmQuery(msgspec.Struct, frozen=True):
    """A query for a project's alarms, newest first."""

    project: str
    since_ms: int = 0
    until_ms: int = LATEST_MS
    #: Start after the alarm with this (made_at, session, sequence).
    after: tuple[int, str, int] | None = None
    count: int = 50


class Rules(Protocol):
    """The rules of all projects, in memory, at most some seconds old. Any call returns at once."""

    def of(self, project: str) -> Sequence[StoredRule]: ...


class Outbox(Protocol):
    """Alarms of this node with pending deliveries. Loop only."""

    def subscribe(self, made: Callable[[Alarm], None]) -> None:
        """Call `made` with each alarm that has become durable, and with each pending one of a partition taken over."""

    def due(self, until_ms: int, count: int, busy: Collection[str] = ()) -> Sequence[Alarm]:
        """Return alarms with a delivery that is due by a log time (ms) to a destination that is not `busy`.

        At most `count` for each destination, the longest due first. A million that are due to a busy destination must
        cost nothing: the index has the destination before the time.
        """

    def waiting(self, most: int) -> int:
        """Return the number of pending deliveries, counted up to `most`."""

    def now_ms(self, session: str) -> int:
        """Return the log time of a session's partition."""

    async def note(self, session: str, sequence: int, delivery: Delivery) -> Alarm | None:
        """Store what became of an attempt; return the alarm, None if it is gone.

        Raises:
            NotOwned: another node owns the partition; it delivers again.
            Unavailable: try again.
        """


class Alarms(Protocol):
    """The edge's access to alarms. Every call may raise Unavailable."""

    def alarms(self, query: AlarmQuery) -> Sequence[Alarm]:
        """Return a project's alarms of the partitions of `Sessions.coverage`, newest first."""

    def alarm(self, session: str, sequence: int) -> Alarm | None: ...

    def project_of(self, session: str) -> str | None:
        """Return the project of a session that has alarms, None without any."""

    async def judge(self, session: str, sequence: int, false: bool) -> Alarm | None:
        """Note that nothing was there, or that something was; return None if there is no such alarm."""

    async def send_again(self, session: str, sequence: int, destination: str) -> Alarm | None:
        """Make a delivery pending and due now."""


class AlarmSettings(Protocol):
    """Rules and destinations in the database. Every call may raise DirectoryDown; an unknown id raises NotFound."""

    async def rules(self, project: str) -> Sequence[StoredRule]: ...

    async def add_rule(self, project: str, rule: AlarmRule) -> StoredRule:
        """Store a new rule.

        Raises:
            BadRequest: it names a destination that the project does not have.
            Conflict: the project is at its limit, or has a rule of this name.
        """

    async def change_rule(self, project: str, id: str, rule: AlarmRule) -> StoredRule:
        """Replace a rule; raise as `add_rule` does."""

    async def remove_rule(self, project: str, id: str) -> None: ...

    async def destinations(self, project: str) -> Sequence[Destination]: ...

    async def destination(self, project: str, id: str) -> Destination: ...

    async def add_destination(self, destination: Destination) -> Destination:
        """Store a new destination under a new id; a webhook gets a secret; raise Conflict as `add_rule` does."""

    async def change_destination(self, destination: Destination) -> Destination:
        """Change all but kind and secrets; raise Conflict if the name is taken."""

    async def remove_destination(self, project: str, id: str) -> None:
        """Remove a destination; raise Conflict if a rule sends to it."""

    async def rotate_secret(self, project: str, id: str) -> Destination:
        """Give a webhook a new secret; the old one signs for a day.

        Raises:
            BadRequest: it is no webhook.
            Conflict: too many old secrets still sign.
        """


class Destinations(Protocol):
    """Destinations for their deliverer, at most some seconds old."""

    async def find(self, id: str) -> Destination | None:
        """Return a destination, None if it was removed; raise DirectoryDown."""

    async def brokers(self) -> Sequence[Destination]:
        """Return the MQTT brokers of all projects that are switched on; raise DirectoryDown."""

    async def switch_off(self, id: str, fault: str) -> None:
        """Switch a destination off because it asked for that (410); raise NotFound or DirectoryDown."""


class TestDelivery(Protocol):
    """Checks destinations, and sends test messages."""

    def check(self, destination: Destination) -> None:
        """Raise BadRequest if an option is not one of its kind, or its URL has a private address that is refused."""

    async def test(self, destination: Destination) -> Delivery:
        """Send a message to a destination now, once; return what became of it."""
