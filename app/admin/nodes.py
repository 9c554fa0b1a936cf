"""All nodes of a deployment: the node that gets the request asks the others, and each reports about itself."""

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import msgspec
import structlog

from app.admin.admin_bodies import Finding, NodeReport, NodesReport, PutBack
from app.admin.health import State, findings, worst
from app.cluster.forwarding import UNTRUSTED, Forwarder
from app.cluster.takeovers import FORWARDED
from app.http.call import Call
from app.http.replies import NO_CONTENT, Reply, StreamReply, json_reply
from topics.errors import NotFound, Unavailable
from topics.ports.nodes import Nodes, QueueFacts

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

#: Timeout of another node's answer, in seconds.
NODE_SECONDS: Final = 5.0
#: Why a node reports no facts, by the status of its answer.
_REASONS: Final = {
    401: "it has another operator's key",
    404: "its operator's interface has an address of its own (EARSHOT_ADMIN_LISTEN), or it is of an earlier version",
}
_report: Final = msgspec.json.Decoder(NodeReport)
#: A partition or an offset in a path.
NUMBER: Final = re.compile("[0-9]{1,18}")


class NodeList:
    """Reports on this node, and on the others by forwarding the request."""

    def __init__(
        self,
        nodes: Nodes,
        forwarder: Forwarder,
        queues: Callable[[], Sequence[QueueFacts]],
        lanes: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        """Report also on the other `lanes` of this machine, by URL."""
        self._nodes = nodes
        self._forwarder = forwarder
        self._queues = queues
        self._lanes = lanes

    async def reply(self, call: Call) -> Reply:
        """Return all nodes that answer or should; return only this node if another node asks."""
        if call.header(FORWARDED):
            return json_reply(await self._own())
        elsewhere = sorted(self._nodes.elsewhere())
        reports = await asyncio.gather(self._own(), *(self._other(call, url) for url in elsewhere))
        count = reports[0].node.partition_count if reports[0].node else 0
        served = {
            partition.number
            for report in reports
            if report.node
            for partition in report.node.partitions
            if partition.state == "serving"
        }
        missing = [number for number in range(count) if number not in served]
        state: State = "bad" if missing else worst(report.state for report in reports)
        return json_reply(NodesReport(state, count, missing, list(reports)))

    async def dead_letter(self, call: Call, reference: str, put_back: bool = False) -> Reply | StreamReply:
        """Return a record that was set aside, or put it back; ask the node that owns its partition.

        Raises:
            NotFound: `reference` is not the place of such a record.
            Unavailable: the node or the log does not answer.
        """
        topic, *numbers = reference.rsplit("/", 2)
        if len(numbers) != 2 or not all(map(NUMBER.fullmatch, numbers)):
            raise NotFound(f"there is no dead letter {reference}: it has a topic, a partition and an offset")
        partition, offset = map(int, numbers)
        if (owner := self._nodes.owner(partition)) is not None and not call.header(FORWARDED):
            return await self._forwarder.forward(call.scope, owner, b"")
        if put_back:
            return json_reply(PutBack(await self._nodes.put_back(topic, partition, offset)))
        return json_reply(await self._nodes.dead_letter(topic, partition, offset))

    async def drain(self, call: Call, url: str, body: bytes) -> Reply | StreamReply:
        """Begin to stop a node, and return its answer; `body` is that of the request.

        Raises:
            NotFound: no node has this URL.
            Unavailable: it does not answer.
        """
        if url == self._nodes.url:
            log.info("node.drains")
            self._nodes.drain()
            return NO_CONTENT
        known = sorted(self._nodes.elsewhere())
        if url not in known or call.header(FORWARDED):
            raise NotFound(f"there is no node {url!r}; there are {', '.join([self._nodes.url, *known])}")
        return await self._forwarder.forward(call.scope, url, body)

    async def _own(self) -> NodeReport:
        facts = await self._nodes.facts()
        facts = msgspec.structs.replace(facts, queues=[*facts.queues, *self._queues()])
        found = findings(facts)
        return NodeReport(facts.url, worst(finding.state for finding in found), found, facts)

    async def _other(self, call: Call, url: str) -> NodeReport:
        try:
            async with asyncio.timeout(NODE_SECONDS):
                reply = await self._forwarder.forward(call.scope, url, b"")
            if isinstance(reply, StreamReply):
                await reply.pieces.aclose()
                return self._silent(url, "it does not answer as a node does")
            if reply.status == 200:
                return msgspec.structs.replace(_report.decode(reply.body), url=url)
            return self._silent(url, _REASONS.get(reply.status, f"it answers {reply.status}"))
        except TimeoutError:
            return self._silent(url, f"it did not answer within {NODE_SECONDS:g} s")
        except Unavailable as error:
            _, untrusted, why = str(error).partition(UNTRUSTED)
            return self._silent(url, f"its certificate is not trusted: {why}" if untrusted else "it does not answer")
        except msgspec.MsgspecError:
            return self._silent(url, "it is of another version: its answer cannot be read")

    def _silent(self, url: str, reason: str) -> NodeReport:
        lane = self._lanes.get(url)
        return NodeReport(url, "bad", [Finding("bad", reason if lane is None else f"lane {lane}: {reason}")], None)
