"""Calls an engine over HTTP, bounded in time, size and number; every failure is a `ServiceFault`."""

import asyncio
import contextlib
from collections.abc import Coroutine, Mapping
from typing import ClassVar, Final, TypeVar

import httpx2
import msgspec

from streams.clients.address import EngineAddress
from streams.clients.call_record import CallRecord
from topics import traces
from topics.errors import ServiceFault

T = TypeVar("T")

MAX_ANSWER_BYTES: Final = 16 * 1024 * 1024
#: Forms with a larger file are not copied into one buffer.
MAX_JOINED_BYTES: Final = 1024 * 1024
#: Seconds until idle connections are closed: before servers close them, since a call on a closing one fails.
IDLE_SECONDS: Final = 1.0
#: Time limit of `reachable`.
REACH_SECONDS: Final = 2.0


#: httpx's errors for a broken connection.
BROKEN: Final = (httpx2.RemoteProtocolError, httpx2.ReadError, httpx2.WriteError)


class ConnectionBroken(ServiceFault):
    """The connection broke before an answer, as when the engine dies."""


class EngineClient:
    """Calls one engine; all jobs share it and its connections. Loop only."""

    path: ClassVar[str]
    #: The engine's name in errors.
    name: ClassVar[str]
    #: The engine's name in errors for answers with status 300 or above.
    label: ClassVar[str]

    def __init__(self, address: EngineAddress) -> None:
        self.address = address
        self.record = CallRecord()
        #: Callers take a slot before they build a request, to keep few requests in memory.
        self.slots = asyncio.Semaphore(address.limit)
        self._url = address.endpoint(self.path)
        limits = httpx2.Limits(max_connections=address.limit, keepalive_expiry=IDLE_SECONDS)
        # Loading certificates is slow, and unnecessary without https.
        verify = self._url.startswith("https:")
        # Proxies of the environment are for other machines only.
        self._http = httpx2.AsyncClient(
            timeout=None, limits=limits, follow_redirects=False, verify=verify, trust_env=not address.local
        )
        self._send = self._http.send if traces.tracer is None else traces.tracer.sending(self.path, self._http.send)

    async def close(self) -> None:
        await self._http.aclose()

    async def post(
        self,
        idempotency_key: str,
        *,
        json: object = None,
        fields: Mapping[str, str | list[str]] | None = None,
        file: tuple[str, bytes, str] | None = None,
    ) -> bytes:
        """Send JSON, or form fields with a file (name, content, type), and return the body of the answer.

        Do not follow redirects, so that the key and the recording go only to the address. Retry once if the connection
        breaks before an answer, and twice for the bundled engine, which another call may have killed.

        Raises:
            ServiceFault: a status of 300 or above, a timeout, a connection that failed or broke again, or an answer of
                more than `MAX_ANSWER_BYTES`.
        """
        headers = {"idempotency-key": idempotency_key, "accept": "application/json", "accept-encoding": "identity"}
        if self.address.key is not None:
            headers["authorization"] = f"Bearer {self.address.key}"
        restarts = self.address.restarts

        def post() -> Coroutine[None, None, bytes]:
            return self._post(headers, json, fields, file)

        with self.record.call():
            if restarts is None:
                with contextlib.suppress(ConnectionBroken):
                    return await post()
                return await post()
            try:
                return await restarts.call(post, ConnectionBroken)
            except ConnectionBroken as error:
                message = f"the {self.name} engine died three times during this request; it is not retried"
                raise ServiceFault(message) from error

    async def _post(
        self,
        headers: dict[str, str],
        json: object,
        fields: Mapping[str, str | list[str]] | None,
        file: tuple[str, bytes, str] | None,
    ) -> bytes:
        final, content = False, None
        if json is not None:
            headers["content-type"] = "application/json"
            content = msgspec.json.encode(json)
        files = None if file is None else {"file": file}
        try:
            async with asyncio.timeout(self.address.timeout_s):
                request = self._http.build_request(
                    "POST", self._url, content=content, data=fields, files=files, headers=headers
                )
                if file is not None and len(file[1]) <= MAX_JOINED_BYTES:
                    # Otherwise the form would be sent in many small pieces, which is slow.
                    await request.aread()
                async with contextlib.aclosing(await self._send(request, stream=True)) as answer:
                    # A remote engine may charge for an answer once it has begun.
                    final = self.address.restarts is None
                    if answer.status_code >= 300:
                        raise ServiceFault(f"{self.label} API error: {answer.status_code}")
                    return await self._body(answer)
        except TimeoutError as error:
            message = f"the {self.name} engine did not answer within {self.address.timeout_s:g} s"
            raise ServiceFault(message) from error
        except httpx2.ConnectError as error:
            raise ServiceFault(f"the {self.name} engine does not answer") from error
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
            message = str(error) or f"the call of the {self.name} engine failed: {type(error).__name__}"
            broken = isinstance(error, BROKEN) and not final
            raise (ConnectionBroken if broken else ServiceFault)(message) from error

    async def reachable(self) -> bool:
        """Return whether the engine answers an empty request, without a key, in any way.

        If all connections are in use, judge by the last call instead.
        """
        if self.record.in_flight >= self.address.limit:
            return not self.record.failing
        try:
            async with asyncio.timeout(REACH_SECONDS), self._http.stream("OPTIONS", self._url):
                return True
        except (TimeoutError, httpx2.HTTPError, httpx2.InvalidURL, OSError):
            return False

    def decode(self, decoder: msgspec.json.Decoder[T], body: bytes) -> T:
        """Decode the body of an answer; raise ServiceFault, which shows none of it, if it is malformed."""
        try:
            return decoder.decode(body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise self.unusable_answer(str(error)) from error

    def unusable_answer(self, fault: str) -> ServiceFault:
        return ServiceFault(f"the {self.name} engine gave no usable answer: {fault}")

    async def _body(self, answer: httpx2.Response) -> bytes:
        # Raw: compression was not requested, and a small compressed answer may expand to gigabytes.
        body = bytearray()
        async for piece in answer.aiter_raw():
            body += piece
            if len(body) > MAX_ANSWER_BYTES:
                raise ServiceFault(f"the answer of the {self.name} engine is larger than {MAX_ANSWER_BYTES} bytes")
        return bytes(body)
