"""Tokens for brokers that ask for OAUTHBEARER, by the grant of client credentials (RFC 6749, 4.4).

aiokafka takes tokens from here; librdkafka fetches its own, from the same endpoint.
"""

import base64
import time
from typing import Final

import httpx2
import msgspec
import structlog
from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import KafkaError

from streams.kafka.credentials import TokenClient

log = structlog.get_logger(__name__)

ANSWER_SECONDS: Final = 5.0


class TokenFailed(KafkaError):  # type: ignore[misc]
    """There is no token; the first argument says why, for operators."""


class _Answer(msgspec.Struct, frozen=True):
    access_token: str = ""
    #: Why there is none.
    error: str = ""


class _Claims(msgspec.Struct, frozen=True):
    exp: float


_answer: Final = msgspec.json.Decoder(_Answer)
_claims: Final = msgspec.json.Decoder(_Claims)


class TokenProvider(AbstractTokenProvider):  # type: ignore[misc]
    """Fetches a token for each connection, or uses the last one while the endpoint gives none. Loop only."""

    def __init__(self, client: TokenClient) -> None:
        self._client = client
        self._last, self._expires = "", 0.0

    async def token(self) -> str:
        """Return a valid token.

        Raises:
            TokenFailed: the endpoint does not answer, refuses the client, or gives an expired token.
        """
        try:
            self._last, self._expires = await self._fetch()
        except TokenFailed as error:
            if self._expires <= time.time():
                raise
            log.warning("broker.token_kept", reason=error.args[0])
        return self._last

    async def _fetch(self) -> tuple[str, float]:
        client = self._client
        form = {"grant_type": "client_credentials"} | ({"scope": client.scope} if client.scope else {})
        where = f"the token endpoint {client.endpoint}"
        try:
            async with httpx2.AsyncClient(timeout=ANSWER_SECONDS, verify=client.ssl_context()) as http:
                answer = await http.post(client.endpoint, data=form, auth=(client.id, client.secret))
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
            raise TokenFailed(f"{where} does not answer: {str(error) or type(error).__name__}") from error
        try:
            said = _answer.decode(answer.content)
        except msgspec.DecodeError:
            said = _Answer()
        if not said.access_token:
            why = f" ({said.error})" if said.error else ""
            raise TokenFailed(f"{where} answers {answer.status_code}{why} to the client {client.id}")
        expires = _expiry(said.access_token)
        if expires is None:
            raise TokenFailed(f"{where} gives a token that is no JWT with an expiry")
        if expires <= time.time():
            raise TokenFailed(f"{where} gives a token that has expired: compare its clock with that of this machine")
        return said.access_token, expires


def _expiry(token: str) -> float | None:
    """Return when a JWT expires, Unix time in seconds; None if it is none, or does not say."""
    try:
        _, claims, _ = token.split(".")
        return _claims.decode(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4))).exp
    except (ValueError, msgspec.DecodeError):
        return None
