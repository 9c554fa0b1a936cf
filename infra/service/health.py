"""Health and metrics of this process: its streams, its database and the disk of its uploads."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from infra.db.database import Database
from infra.service.models import ModelsInUse
from infra.transport.connections import Connections
from infra.transport.lanes import LaneStates
from streams.node.node import Node
from topics.ports.health import Note, Reading

GIVEN: Final = "Connections that were handed over to other lanes of this machine."


class ServiceHealth:
    """Implements the port `topics.ports.health.Health`, and the readings of the other rooms. Loop only."""

    def __init__(
        self,
        node: Node,
        database: Database,
        models: ModelsInUse,
        uploads: Path,
        kept_free: int,
        connections: Connections,
        lanes: LaneStates | None = None,
    ) -> None:
        """Report on a node; the disk of the directory `uploads` keeps `kept_free` bytes free."""
        self._connections = connections
        self._lanes = lanes
        self._node = node
        self._database = database
        self._models = models
        self._uploads = uploads
        self._kept_free = kept_free

    def alive(self) -> str | None:
        return self._node.alive()

    def ready(self) -> str | None:
        reason = self._node.ready()
        if reason is None and self._lanes is not None and (starting := self._lanes.lanes(LaneStates.STARTING)):
            return f"lane {starting[0]} is starting"
        return reason

    def is_behind(self) -> bool:
        return self._node.is_behind()

    def notes(self) -> list[Note]:
        """Return problems that do not stop requests, worst first."""
        notes = self._node.notes()
        if self._lanes is not None and self._lanes.lanes(LaneStates.FAILED):
            notes.insert(0, "a lane has failed")
        if self._database.failure is not None:
            notes.append("the database fails")
        if self._models.fault is not None:
            notes.append("another sound model stands in for the one that cannot be used")
        room = self._room()
        if room is None:
            notes.append("uploads are refused: their directory is missing")
        elif room <= 0:
            notes.append("uploads are refused: the disk is nearly full")
        return notes

    def readings(self) -> Iterator[Reading]:
        """Yield the metrics that the edge does not count."""
        yield from self._node.readings()
        if (lanes := self._connections.lanes) is not None:
            yield Reading("earshot_connections_given_total", GIVEN, lanes.given)
        help = "Lanes of this machine that wait before they are started again."
        yield Reading("earshot_failed_lanes", help, len(self._lanes.lanes(LaneStates.FAILED)) if self._lanes else 0)
        yield Reading("earshot_connections", "Open connections of clients.", len(self._connections))
        help = "The most seconds for which the event loop did not turn, in the last minute or two."
        yield Reading("earshot_loop_delay_seconds", help, self._connections.loop_delay)
        help = "1 while the last use of the database failed."
        yield Reading("earshot_database_failing", help, self._database.failure is not None)
        yield Reading("earshot_database_uses_total", "Reads and writes of the database.", self._database.uses)
        yield Reading("earshot_database_seconds_total", "Seconds that they took.", self._database.seconds)
        help = "Bytes of the disk that uploads may still take."
        yield Reading("earshot_upload_room_bytes", help, max(0, self._room() or 0))

    def _room(self) -> int | None:
        try:
            return shutil.disk_usage(self._uploads).free - self._kept_free
        except OSError:  # Somebody removed the directory.
            return None
