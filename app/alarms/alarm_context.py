"""What the operations on rules, destinations and alarms share."""

from collections.abc import Sequence
from typing import Final

import msgspec

from app.cluster.cursors import ListCursors
from app.cluster.forwarding import Forwarder
from app.cluster.lists import ProjectList
from app.http.holder_quota import HolderQuota
from app.http.turns import LoopTurns
from app.identity.authentication import Authenticator
from app.shown_alarms import ShownAlarm
from topics.alarms.alarms import Alarm
from topics.errors import BadRequest, DirectoryDown
from topics.ports.alarms import AlarmQuery, Alarms, AlarmSettings, TestDelivery
from topics.ports.directory import Principal
from topics.ports.lists import Coverage, ListQuery
from topics.ports.own_sounds import OwnSoundStore
from topics.ports.sessions import Sessions

DOWN: Final = DirectoryDown("the database does not answer")


class AlarmContext(msgspec.Struct, frozen=True):
    """The rules and destinations, the alarms, and what rules may name."""

    settings: AlarmSettings
    deliveries: TestDelivery
    alarms: Alarms
    list: ProjectList[Alarm]
    sessions: Sessions
    own_sounds: OwnSoundStore
    project_keys: Authenticator[Principal]
    turns: LoopTurns
    #: Rules that are being tried.
    trials: HolderQuota


def alarm_list(alarms: Alarms, sessions: Sessions, cursors: ListCursors, forwarder: Forwarder) -> ProjectList[Alarm]:
    def shown(time_ms: int, id: str, alarm: Alarm) -> ShownAlarm:
        return ShownAlarm.of(alarm)

    return ProjectList("alarms", (), ListedAlarms(alarms, sessions), shown, cursors, forwarder)


class ListedAlarms(msgspec.Struct, frozen=True):
    """The alarms of projects, as `ProjectList` reads them: an entry's id is its session and sequence."""

    source: Alarms
    sessions: Sessions

    def coverage(self) -> Coverage:
        return self.sessions.coverage()

    def listed(self, query: ListQuery) -> Sequence[tuple[int, str, Alarm]]:
        after = None
        if query.after is not None:
            session, _, sequence = query.after[1].partition(".")
            after = query.after[0], session, int(sequence)
        asked = AlarmQuery(query.project, query.since_ms, query.until_ms, after, query.count)
        return [(one.made_at, f"{one.session}.{one.sequence:012d}", one) for one in self.source.alarms(asked)]


def check_text(field: str, text: str) -> None:
    """Check a name or a URL.

    Raises:
        BadRequest: it has characters that are not printable, or a space at either end.
    """
    if not text.isprintable() or text != text.strip():
        raise BadRequest(f"{field}: only printable characters are allowed, and no space at either end")
