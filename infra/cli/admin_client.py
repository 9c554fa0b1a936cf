"""The operator's client of a remote service: the port `topics.ports.administration.Administration` over HTTP."""

from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from types import TracebackType
from typing import Final, Self, TypeVar
from urllib.parse import quote

import httpx2
import msgspec

from app.admin.admin_bodies import (
    PREFIX,
    AdminFault,
    Drain,
    IssuedKey,
    MadeOrganization,
    MadeProject,
    NewOrganization,
    NewProject,
    NodesReport,
    Plan,
    PutBack,
    ShownOrganization,
    ShownProject,
)
from app.admin.usage_rows import LineRow, TotalRow
from app.http.faults import NOT_JSON
from topics import apikeys
from topics.errors import BadRequest, DirectoryDown, EarshotError, NotFound, RequestError, Unauthorized
from topics.ports.administration import Organization, Project, UsageFilter, UsageTotal
from topics.ports.ledger import Charge
from topics.ports.nodes import DeadLetter

T = TypeVar("T")

TIMEOUT: Final = httpx2.Timeout(60.0, connect=5.0)
#: Bytes of a line of usage, which holds some hundred rows.
LONGEST_LINE: Final = 16 * 1024 * 1024
_NOTHING: Final[Mapping[str, str]] = {}
_BY_STATUS: Final = {kind.status: kind for kind in (BadRequest, Unauthorized, NotFound)}


class AdminClient:
    """Administers a remote service, with the methods and errors of the port.

    It retries nothing: after a DirectoryDown a change may or may not have been made. `totals` splits a model's name at
    commas.
    """

    def __init__(self, url: str, key: str, *, transport: httpx2.AsyncBaseTransport | None = None) -> None:
        """Make a client of the service at `url`. Nothing is sent yet.

        Raises:
            BadRequest: `url` is not an http:// or https:// URL, or contains a user or password.
            Unauthorized: `key` cannot be a key.
        """
        self._url = _base_url(url)
        if fault := apikeys.fault(key):
            raise Unauthorized(f"the admin key {fault}")
        headers = {"authorization": f"Bearer {key}"}
        self._http = httpx2.AsyncClient(
            base_url=self._url + PREFIX, headers=headers, timeout=TIMEOUT, transport=transport
        )

    async def create_organization(self, name: str) -> tuple[Organization, str]:
        reply = await self._ask("POST", "/organizations", MadeOrganization, NewOrganization(name))
        return reply.organization.organization(), reply.key

    async def organizations(self) -> list[Organization]:
        return [one.organization() for one in await self._ask("GET", "/organizations", list[ShownOrganization])]

    async def rotate_organization_key(self, organization: str) -> str:
        return (await self._ask("POST", f"/organizations/{_segment(organization)}/key", IssuedKey)).key

    async def delete_organization(self, organization: str) -> None:
        await self._send("DELETE", f"/organizations/{_segment(organization)}")

    async def create_project(self, name: str, organization: str | None = None) -> tuple[Project, str]:
        reply = await self._ask("POST", "/projects", MadeProject, NewProject(name, organization))
        return reply.project.project(), reply.key

    async def projects(self, organization: str | None = None) -> list[Project]:
        query = _query(organization=organization)
        return [one.project() for one in await self._ask("GET", "/projects", list[ShownProject], query=query)]

    async def rotate_project_key(self, project: str) -> str:
        return (await self._ask("POST", f"/projects/{_segment(project)}/key", IssuedKey)).key

    async def plan(self, project: str, free_seconds: int | None) -> None:
        await self._send("PUT", f"/projects/{_segment(project)}/plan", Plan(free_seconds))

    async def delete_project(self, project: str) -> None:
        await self._send("DELETE", f"/projects/{_segment(project)}")

    async def totals(self, period: UsageFilter) -> list[UsageTotal]:
        rows = await self._ask("GET", "/usage", list[TotalRow], query=_query(**msgspec.structs.asdict(period)))
        return [row.total() for row in rows]

    async def lines(self, period: UsageFilter) -> AsyncGenerator[Sequence[Charge], None]:
        query = _query(**msgspec.structs.asdict(period), lines="true")
        with self._reachable():
            async with self._http.stream("GET", "/usage", params=query) as response:
                if not response.is_success:
                    raise self._refusal(response.status_code, await response.aread())
                async with aclosing(self._lines_of(response.aiter_bytes())) as lines:
                    async for line in lines:
                        if rows := self._decoded(b"[%b]" % line.strip(b"[],"), list[LineRow]):
                            yield [row.charge() for row in rows]

    async def nodes(self) -> NodesReport:
        """Return the state of the nodes, which is not part of the port."""
        return await self._ask("GET", "/nodes", NodesReport)

    async def dead_letter(self, reference: str) -> DeadLetter:
        """Return a record that was set aside, which is not part of the port either."""
        return await self._ask("GET", f"/dead-letters/{_segment(reference)}", DeadLetter)

    async def put_back(self, reference: str) -> int:
        """Put such a record back; return its new offset."""
        return (await self._ask("POST", f"/dead-letters/{_segment(reference)}", PutBack)).offset

    async def drain(self, url: str) -> None:
        """Begin to stop a node, which is not part of the port."""
        await self._send("POST", "/nodes/drain", Drain(url))

    async def close(self) -> None:
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _ask(
        self,
        method: str,
        path: str,
        kind: type[T],
        body: msgspec.Struct | None = None,
        query: Mapping[str, str] = _NOTHING,
    ) -> T:
        return self._decoded(await self._send(method, path, body, query), kind)

    async def _send(
        self, method: str, path: str, body: msgspec.Struct | None = None, query: Mapping[str, str] = _NOTHING
    ) -> bytes:
        content = None if body is None else msgspec.json.encode(body)
        with self._reachable():
            response = await self._http.request(method, path, content=content, params=query)
        if not response.is_success:
            raise self._refusal(response.status_code, response.content)
        return response.content

    @contextmanager
    def _reachable(self) -> Iterator[None]:
        try:
            yield
        except httpx2.RequestError as error:
            fault = str(error) or type(error).__name__
            raise DirectoryDown(
                f"no answer from {self._url}: {fault}; set --url or EARSHOT_ADMIN_URL to the operator's interface"
            ) from None

    def _decoded(self, answer: bytes, kind: type[T]) -> T:
        try:
            return msgspec.json.decode(answer, type=kind)
        except NOT_JSON:
            raise self._protocol_error() from None

    async def _lines_of(self, array: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
        """Yield the lines of a JSON array that has line breaks between rows."""
        rest = b""
        async for data in array:
            *lines, rest = (rest + data).split(b"\n")
            if len(rest) > LONGEST_LINE:
                raise self._protocol_error()
            for line in lines:
                yield line
        if not rest.endswith(b"]"):
            raise self._protocol_error()
        yield rest

    def _refusal(self, status: int, answer: bytes) -> EarshotError:
        try:
            fault = msgspec.json.decode(answer, type=AdminFault)
        except NOT_JSON:
            return self._protocol_error()
        if status == 404 and fault.status_code is not None:
            reason = "EARSHOT_ADMIN_KEY is not set there, or EARSHOT_ADMIN_LISTEN is"
            return DirectoryDown(f"{self._url} has no operator's interface: {reason}")
        if status >= 500:
            return DirectoryDown(f"{self._url}: {fault.error}")
        return _BY_STATUS.get(status, RequestError)(fault.error)

    def _protocol_error(self) -> DirectoryDown:
        return DirectoryDown(f"what answers at {self._url} does not speak the operator's interface")


def _base_url(url: str) -> str:
    try:
        parsed = httpx2.URL(url)
    except httpx2.InvalidURL:
        parsed = httpx2.URL()
    excess = parsed.userinfo or parsed.query or parsed.fragment or (parsed.port or 0) > 65535
    if parsed.scheme not in ("http", "https") or not parsed.host or excess:
        # The message omits the URL, which may contain a password.
        raise BadRequest("the URL of a service is http://HOST or https://HOST, without a user or password")
    return url.rstrip("/")


def _segment(reference: str) -> str:
    """Return an id or name as one path segment; dots are quoted too, because `.` and `..` would change the path."""
    return quote(reference, safe="").replace(".", "%2E")


def _query(**values: str | None) -> dict[str, str]:
    return {name: value for name, value in values.items() if value is not None}
