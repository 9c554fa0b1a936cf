"""Connections to MQTT brokers, one for each destination of a node, for programs of all kinds and for Home Assistant."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import random
import ssl
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final
from urllib.parse import urlsplit

import aiomqtt
import structlog
from aiomqtt.exceptions import MqttConnectError

from streams.deliveries import home_assistant
from streams.deliveries.addresses import Resolver
from streams.deliveries.broker_socket import MOST_BYTES, BrokerSocket, open_socket
from streams.deliveries.home_assistant import Offer, Source, Topics
from streams.deliveries.http import tls
from streams.deliveries.outcome import Outcome
from topics.alarms.alarms import Alarm
from topics.alarms.rules import StoredRule
from topics.ports.alarms import Destination

log = structlog.get_logger(__name__)

PORTS: Final = {"mqtt": 1883, "mqtts": 8883}
#: Seconds to connect, and for the broker to acknowledge a message.
CONNECT_SECONDS: Final = 15.0
ACKNOWLEDGE_SECONDS: Final = 10.0
#: Seconds between attempts to connect; they double.
FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 60.0
#: Seconds in which Home Assistant subscribes to a new device: events are not kept for it.
SETTLE_SECONDS: Final = 1.0
#: Sources of one destination on a node that are announced.
MOST_SOURCES: Final = 256

#: What a source's connection becomes by an alarm.
STATES: Final = {"source.lost": b"OFF", "source.back": b"ON"}

#: The library's own lines would tell of every message.
_silent: Final = logging.getLogger("earshot.mqtt")
_silent.disabled = True

#: What breaks a connection. aiomqtt raises ValueError for what no packet can carry.
_BROKEN: Final = (aiomqtt.MqttError, OSError, ValueError)


class _Client(aiomqtt.Client):
    """Talks through a socket that is connected already: paho would wait for it in a thread. Loop only."""

    def __init__(self, sock: BrokerSocket, destination: Destination, identifier: str, will: aiomqtt.Will) -> None:
        super().__init__(
            "broker",
            username=destination.user,
            password=destination.password,
            identifier=identifier,
            will=will,
            logger=_silent,
            timeout=ACKNOWLEDGE_SECONDS,
            max_queued_incoming_messages=16,
        )
        self.socket = sock
        self._client._create_socket = lambda: sock  # type: ignore[method-assign]

    def _on_disconnect(self, *args: Any) -> None:
        super()._on_disconnect(*args)
        self._note_errors()  # aiomqtt forgets the future if the broker ends the connection at once.

    def _note_errors(self) -> None:
        """Otherwise asyncio logs them, for each attempt at a broker that breaks the protocol."""
        for ended in (self._connected, self._disconnected):
            if ended.done() and not ended.cancelled():
                ended.exception()

    def abandon(self) -> None:
        """Close the socket, which aiomqtt leaves open if the broker does not answer."""
        with suppress(ValueError):  # The thread of its connect call was closing it.
            self._client._sock_close()
        self.socket.close()
        self._note_errors()


class Connection:
    """The connection of one destination: it connects again by itself. Loop only."""

    def __init__(
        self, destination: Destination, node: str, version: str, resolver: Resolver, is_back: Callable[[str], None]
    ) -> None:
        """Connect as a client of the node; `is_back` is called with the destination's id once the broker answers."""
        self.destination = destination
        self._version = version
        self._resolver = resolver
        self._is_back = is_back
        digest = hashlib.blake2b(f"{node}\0{destination.id}".encode(), digest_size=8).hexdigest()
        #: 23 letters and digits: every broker takes such an id.
        self._identifier = f"earshot{digest}"
        self.topics = Topics(destination)
        self._client: _Client | None = None
        #: Done when the connection of now has ended.
        self._down: asyncio.Future[None] | None = None
        #: Set while no attempt to connect runs.
        self._settled = asyncio.Event()
        self._error = "no connection"
        #: Sources with what they have, and what Home Assistant knows of them from this connection.
        self._sources: dict[Source, Offer] = {}
        self._told: dict[Source, Offer] = {}
        #: When the alarm was made that told the state of a source last, and its number in the session.
        self._states: dict[Source, tuple[int, int]] = {}
        self._telling = asyncio.Lock()
        #: Whether the next connection subscribes: not after one that got too much, perhaps one large retained message.
        self._hears = True
        self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        """Say that the connection ends, and end it."""
        client, self._client = self._client, None
        if client is not None:
            with suppress(*_BROKEN):
                await client.publish(self.topics.status, "offline", qos=1, retain=True, timeout=1.0)
        while not self._task.done():  # aiomqtt uses asyncio.wait_for, which loses a cancellation before Python 3.12.
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=0.5)

    async def send(self, alarm: Alarm, rules: Iterable[StoredRule]) -> Outcome:
        """Publish an alarm; the outcome is the broker's acknowledgement."""
        await self._settled.wait()
        source = Source(alarm.project, alarm.source)
        try:
            if alarm.what == "test":
                await self._publish(self.topics.test, home_assistant.event(alarm))
                return Outcome()
            offered = home_assistant.offer(rules, self.destination.id, source, alarm.labels)
            # Home Assistant takes no event of a type that it does not know; the rule may have changed since.
            offered = offered._replace(rules=offered.rules | {alarm.rule_name})
            if await self.announce({source: offered}):
                await asyncio.sleep(SETTLE_SECONDS)
            await self._publish(self.topics.alarm(source), home_assistant.event(alarm))
            # One that failed first comes after those that were made later.
            if alarm.what in STATES and (made := (alarm.made_at, alarm.sequence)) >= self._states.get(source, made):
                self._states[source] = made
                await self._publish(self.topics.connected(source), STATES[alarm.what], retain=True)
            return Outcome()
        except _BROKEN as error:
            return Outcome(sentence(error), away=True)

    async def announce(self, sources: Mapping[Source, Offer]) -> bool:
        """Tell Home Assistant of sources, as far as it was not told; return whether there was one.

        Raises:
            aiomqtt.MqttError, OSError: the broker does not answer.
        """
        self._sources.update(sources)
        while len(self._sources) > MOST_SOURCES:
            self.forget_others(self._sources.keys() - {next(iter(self._sources))})
        return await self._tell()

    def forget_others(self, sources: Iterable[Source]) -> None:
        """Forget all other sources: another node may tell of them from now on, so they are told anew if they return."""
        for known in (self._sources, self._told, self._states):
            for source in known.keys() - sources:
                del known[source]

    async def _tell(self) -> bool:
        told = False
        async with self._telling:
            for source, offered in list(self._sources.items()):
                if self._told.get(source) != offered:
                    message = home_assistant.device(self.topics, source, offered, self._version)
                    await self._publish(self.topics.discovery(source), message, retain=True)
                    self._told[source] = offered
                    told = True
        return told

    async def _publish(self, topic: str, message: bytes, retain: bool = False) -> None:
        """Publish with QoS 1, and wait for the acknowledgement, but not longer than for the connection's end."""
        client, down = self._client, self._down
        if client is None or down is None:
            raise ConnectionError(self._error)
        client.socket.allowance = MOST_BYTES
        sent = asyncio.ensure_future(client.publish(topic, message, qos=1, retain=retain))
        try:
            await asyncio.wait({sent, down}, return_when=asyncio.FIRST_COMPLETED)
            if not sent.done():
                raise ConnectionError(self._error)
            sent.result()
        finally:
            sent.cancel()

    async def _run(self) -> None:
        failures = 0
        while True:
            self._settled.clear()
            client = None
            try:
                client = await self._connect()
                async with client:
                    failures = 0
                    await self._serve(client)
            except Exception as error:
                if not isinstance(error, _BROKEN):
                    log.error("broker.broken", destination=self.destination.id, exc_info=error)
                failures += 1
                self._error = sentence(error)
            finally:
                if client is not None:
                    client.abandon()
                    if (got_too_much := client.socket.allowance < 0) and self._hears:
                        log.warning("broker.not_heard", destination=self.destination.id, topic=self.topics.birth)
                    self._hears = not got_too_much
                self._client = None
                self._told.clear()
                if self._down is not None and not self._down.done():
                    self._down.set_result(None)
                self._settled.set()
            pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(failures - 1, 16))
            await asyncio.sleep(pause * random.uniform(0.8, 1.2))

    async def _connect(self) -> _Client:
        url = urlsplit(self.destination.url)
        if url.scheme not in PORTS or not url.hostname:
            raise ValueError("its URL is none of a broker")
        context = await asyncio.to_thread(tls) if url.scheme == "mqtts" else None
        async with asyncio.timeout(CONNECT_SECONDS):
            sock = await open_socket(self._resolver, url.hostname, url.port or PORTS[url.scheme], context)
        try:
            will = aiomqtt.Will(self.topics.status, "offline", qos=1, retain=True)
            return _Client(sock, self.destination, self._identifier, will)
        except BaseException:
            sock.close()
            raise

    async def _serve(self, client: _Client) -> None:
        """Use a connection until it ends; tell of all devices whenever Home Assistant starts."""
        await client.publish(self.topics.status, "online", qos=1, retain=True)
        if self._hears:
            await client.subscribe([(self.topics.birth, 0), (self.topics.status, 1)])
        self._client, self._down = client, asyncio.get_running_loop().create_future()
        await self._tell()
        self._settled.set()
        self._is_back(self.destination.id)
        async for message in client.messages:
            if message.topic.value == self.topics.status:
                if message.payload == b"offline" and self._client is client:  # Another node has left.
                    await client.publish(self.topics.status, "online", qos=1, retain=True)
            elif message.payload == b"online" and not message.retain:
                self._told.clear()
                await self._tell()


def sentence(error: BaseException) -> str:
    """Return why a broker took no message."""
    if isinstance(error, TimeoutError):
        return f"it did not answer within {CONNECT_SECONDS:g} s"
    if isinstance(error, MqttConnectError):
        return f"the broker refuses the connection: {error}"
    if isinstance(error, ssl.SSLError):
        return f"no TLS with the broker: {error.reason or error}"
    if isinstance(error, OSError) and error.errno:
        return f"no connection: {os.strerror(error.errno)}"
    return str(error) or f"the connection failed: {type(error).__name__}"
