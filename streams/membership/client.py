"""A client of brokers that gives up a frozen one long before a session ends.

A broker that is paused, or whose network is cut, keeps its connections. aiokafka waits for it as long as for a join,
which may last two sessions.
"""

import asyncio
from contextlib import suppress
from typing import Any, Final

from aiokafka.client import AIOKafkaClient, ConnectionGroup
from aiokafka.conn import CloseReason
from aiokafka.errors import RequestTimedOutError
from aiokafka.protocol.group import JoinGroupRequest, SyncGroupRequest

#: Seconds that a broker has for an answer that waits for no other node.
ANSWER_SECONDS: Final = 4.0


class BrokerClient(AIOKafkaClient):  # type: ignore[misc]
    """Gives up a broker that does not answer after `ANSWER_SECONDS`, if it need not wait for others. Loop only."""

    async def send(self, node: int, request: Any, *, group: int = ConnectionGroup.DEFAULT) -> Any:
        if isinstance(request, (JoinGroupRequest, SyncGroupRequest)):
            return await super().send(node, request, group=group)
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return await super().send(node, request, group=group)
        except TimeoutError as error:
            if (connection := self._conns.get((node, group))) is not None:
                connection.close(reason=CloseReason.CONNECTION_TIMEOUT)
            raise RequestTimedOutError from error

    async def _get_conn(self, node: int, **more: Any) -> Any:
        # Others wait for it: one connection is made at a time.
        with suppress(TimeoutError):
            async with asyncio.timeout(ANSWER_SECONDS):
                return await super()._get_conn(node, **more)
        return None
