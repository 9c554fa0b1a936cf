"""Lists of a project's sessions, jobs or alarms, merged from the nodes that own its partitions.

The node that gets the request reads its own partitions and forwards the request to the others for theirs. If no node
answers for a partition, the page reports it as missing.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Annotated, Final, Generic, Protocol, TypeVar

import msgspec

from app.cluster.cursors import ListCursors
from app.cluster.forwarding import Forwarder
from app.cluster.takeovers import FORWARDED
from app.http.call import Call
from app.http.queries import IntegerParameter, query_parameters
from app.http.replies import Reply, StreamReply, json_reply
from topics.errors import BadRequest, Unavailable
from topics.ports.lists import Coverage, ListQuery

P = TypeVar("P")
V = TypeVar("V")
V_co = TypeVar("V_co", covariant=True)

#: Entries of a page, by default and at most.
PAGE: Final = 50
LONGEST_PAGE: Final = 200
COUNT: Final = IntegerParameter("count", "Entries per page.", PAGE, 1, LONGEST_PAGE)
NOBODY: Final = "no node serves this list now; try again"
#: Timeout of another node's part of a page, in seconds.
PART_SECONDS: Final = 3.0


class MissingPart(msgspec.Struct, frozen=True):
    """The missing part of a page: the partitions of nodes that did not answer."""

    partitions: Annotated[int, msgspec.Meta(ge=1, description="Partitions whose entries are not listed.")]
    of: Annotated[int, msgspec.Meta(ge=1, description="Partitions in total.")]


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """An entry as nodes exchange it."""

    #: Log time, milliseconds.
    time_ms: int
    id: str
    #: The part that clients see.
    fields: msgspec.Raw


class Part(msgspec.Struct, frozen=True):
    """One node's part of a page: up to one entry more than a page holds."""

    partitions: frozenset[int]
    entries: Sequence[Entry]


_part: Final = msgspec.json.Decoder(Part)


class Source(Protocol[V_co]):
    """The port that reads entries."""

    def coverage(self) -> Coverage:
        """Return which partitions `listed` reads, and who has the others."""

    def listed(self, query: ListQuery) -> Sequence[tuple[int, str, V_co]]:
        """Return (time in log ms, id, view), newest first."""


class ProjectList(Generic[V]):
    """One kind of list, such as the sessions of projects."""

    def __init__(
        self,
        name: str,
        states: Sequence[str],
        source: Source[V],
        render: Callable[[int, str, V], object],
        cursors: ListCursors,
        forwarder: Forwarder,
    ) -> None:
        """List under `name`, which is also the member that holds the entries, with their possible `states`, if any."""
        self.name = name
        self._states = states
        self._source = source
        self._render = render
        self._cursors = cursors
        self.forwarder = forwarder

    async def page(self, call: Call, project: str) -> Reply:
        """Return the page that a request asks for.

        Raises:
            BadRequest: a parameter is malformed.
            Unavailable: no node can list anything now.
        """
        query = self._query(call, project)
        if call.header(FORWARDED):
            return json_reply(self._own_part(query))
        urls = sorted(self._source.coverage().elsewhere)
        others = await parts_of(call, self.forwarder, urls, _part.decode)
        parts = [self._own_part(query), *others]
        covered = {number for part in parts for number in part.partitions}
        if not covered:
            raise Unavailable(NOBODY)
        # Two nodes have the same entry while its partition moves between them.
        entries = {entry.id: entry for part in parts for entry in part.entries}
        newest = sorted(entries.values(), key=lambda entry: (-entry.time_ms, entry.id))
        page = newest[: query.count]
        content: dict[str, object] = {self.name: [entry.fields for entry in page]}
        if len(newest) > len(page):
            content["next_token"] = self._cursors.issue(self.name, query, (page[-1].time_ms, page[-1].id))
        partitions = self._source.coverage().partitions
        if missing := partitions - len(covered):
            content["missing"] = MissingPart(missing, partitions)
        return json_reply(content)

    def _own_part(self, query: ListQuery) -> Part:
        more = msgspec.structs.replace(query, count=query.count + 1)
        coverage = self._source.coverage()
        entries = self._source.listed(more) if coverage.here else ()
        rendered = [
            Entry(at, id, msgspec.Raw(msgspec.json.encode(self._render(at, id, view)))) for at, id, view in entries
        ]
        return Part(coverage.here, rendered)

    def _query(self, call: Call, project: str) -> ListQuery:
        query = query_parameters(call.scope)
        if cursor := query.get("next_token"):
            return self._cursors.read(self.name, project, cursor)
        states = read_states(query, self._states) if self._states else ()
        everything = ListQuery(project, states, count=COUNT.read(query))
        since_ms, until_ms = (read_time(query, name, getattr(everything, f"{name}_ms")) for name in ("since", "until"))
        return msgspec.structs.replace(everything, since_ms=since_ms, until_ms=until_ms)


class Elsewhere(msgspec.Struct, frozen=True):
    """The other lanes of this machine, which one answer is for too."""

    forwarder: Forwarder
    urls: Sequence[str] = ()

    async def parts(self, call: Call, decoder: Callable[[bytes], P]) -> list[P]:
        """Return their parts of an answer, without those that give none; no parts for a request that one forwarded."""
        if call.header(FORWARDED) or not self.urls:
            return []
        return await parts_of(call, self.forwarder, self.urls, decoder)


async def parts_of(
    call: Call, forwarder: Forwarder, urls: Iterable[str], decoder: Callable[[bytes], P], body: bytes = b""
) -> list[P]:
    """Return the parts of an answer that other nodes give to a request, without those that are not valid."""
    parts = await asyncio.gather(*(_part_of(call, forwarder, url, decoder, body) for url in urls))
    return [part for part in parts if part is not None]


async def _part_of(call: Call, forwarder: Forwarder, url: str, decoder: Callable[[bytes], P], body: bytes) -> P | None:
    """Return another node's part of an answer, or None if it gives no valid one."""
    try:
        async with asyncio.timeout(PART_SECONDS):
            reply = await forwarder.forward(call.scope, url, body)
        if isinstance(reply, StreamReply):
            await reply.pieces.aclose()
            return None
        return decoder(reply.body) if reply.status == 200 else None
    except (TimeoutError, Unavailable, msgspec.MsgspecError):
        return None


def read_states(query: dict[str, str], known: Sequence[str]) -> tuple[str, ...]:
    """Return the requested states; empty means all.

    Raises:
        BadRequest: a state is unknown.
    """
    states = tuple(dict.fromkeys(query["state"].split(","))) if query.get("state") else ()
    for state in states:
        if state not in known:
            raise BadRequest(f"state: must be one of {', '.join(known)}")
    return states


def read_time(query: dict[str, str], name: str, default: int) -> int:
    """Return an ISO 8601 time as milliseconds since 1970; UTC unless it has a zone.

    Raises:
        BadRequest: it is not a time.
    """
    if not (text := query.get(name)):
        return default
    try:
        # An unescaped plus sign means a space in a query string.
        time = datetime.fromisoformat(text.replace(" ", "+"))
        milliseconds = round((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)
    except (ValueError, OverflowError):
        raise BadRequest(f"{name}: not a time such as 2026-01-02T03:04:05Z") from None
    return max(milliseconds, 1)
