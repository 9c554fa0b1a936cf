"""The connections of a node to MQTT brokers; Home Assistant learns of sources before their first alarm."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import islice
from typing import Final, Protocol

import aiomqtt
import structlog

from streams.deliveries.addresses import Resolver
from streams.deliveries.home_assistant import Source, offer
from streams.deliveries.mqtt import MOST_SOURCES, Connection
from streams.deliveries.options import DeliveryOptions
from streams.deliveries.outcome import Outcome
from topics.alarms.alarms import Alarm
from topics.errors import DirectoryDown, EarshotError
from topics.ports.alarms import Destination, Destinations, Rules

log = structlog.get_logger(__name__)

#: Seconds between two looks for sources, rules and destinations, and how long a connection outlives its last use.
LOOK_SECONDS: Final = 5.0
UNUSED_SECONDS: Final = 60.0


class Sources(Protocol):
    """The streams of this node. Loop only."""

    def __call__(self, project: str) -> Mapping[str | None, Mapping[str, str]]:
        """Return the labels of a project's open streams by their names."""


class Brokers:
    """Sends alarms to MQTT brokers. Loop only."""

    def __init__(
        self,
        options: DeliveryOptions,
        resolver: Resolver,
        destinations: Destinations,
        rules: Rules,
        sources: Sources,
    ) -> None:
        self._options = options
        self._resolver = resolver
        self._destinations = destinations
        self._rules = rules
        self._sources = sources
        #: Connections by destination, and when each was used last (monotonic seconds).
        self._connections: dict[str, Connection] = {}
        self._used: dict[str, float] = {}
        #: Called with a destination's id once its broker answers.
        self.is_back: Callable[[str], None] = lambda id: None

    async def send(self, destination: Destination, alarm: Alarm) -> Outcome:
        connection = await self._connection(destination)
        return await connection.send(alarm, self._rules.of(alarm.project))

    async def run(self) -> None:
        """Keep connections for sources whose alarms go to brokers, until cancelled."""
        while True:
            with suppress(DirectoryDown):
                await asyncio.gather(*map(self._announce, await self._destinations.brokers()))
                now = time.monotonic()
                for id in [id for id, used in self._used.items() if now > used + UNUSED_SECONDS]:
                    del self._used[id]
                    await self._connections.pop(id).close()
            await asyncio.sleep(LOOK_SECONDS)

    async def close(self) -> None:
        await asyncio.gather(*(one.close() for one in self._connections.values()))

    async def _announce(self, destination: Destination) -> None:
        """Tell a broker of the sources that its destination gets alarms of."""
        project, rules = destination.project, self._rules.of(destination.project)
        if not any(destination.id in one.rule.destinations for one in rules):
            return
        try:
            offers = {
                source: offered
                for name, labels in self._sources(project).items()
                if (offered := offer(rules, destination.id, source := Source(project, name), labels)).rules
            }
            offers = dict(islice(offers.items(), MOST_SOURCES))  # Further ones would push each other out at each look.
            if (known := self._connections.get(destination.id)) is not None:
                known.forget_others(offers)
            if offers:
                await (await self._connection(destination)).announce(offers)
        except (aiomqtt.MqttError, OSError, EarshotError):
            pass  # It is told once it answers.
        except Exception as error:  # A fault of ours, which ends nothing else.
            log.error("broker.broken", destination=destination.id, exc_info=error)

    async def _connection(self, destination: Destination) -> Connection:
        """Return the connection of a destination; a new one if its settings have changed."""
        self._used[destination.id] = time.monotonic()
        connection = self._connections.get(destination.id)
        if connection is None or _address(connection.destination) != _address(destination):
            self._connections[destination.id] = Connection(
                destination, self._options.node, self._options.version, self._resolver, self.is_back
            )
            if connection is not None:
                await connection.close()
        return self._connections[destination.id]


def _address(destination: Destination) -> tuple[object, ...]:
    return destination.url, destination.user, destination.password, dict(destination.options)
