"""Tokens for brokers: fetched for each connection, checked, and kept while the endpoint is away."""

import asyncio
import base64
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qs

import msgspec
import pytest

from streams.kafka.credentials import TokenClient
from streams.kafka.tokens import TokenFailed, TokenProvider
from tests.ports import free_port
from tests.unit.app.conftest import behind_a_server


def jwt(expires: float, **claims: object) -> str:
    """Return an unsigned token."""

    def part(value: object) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    said = {"sub": "earshot", "iat": int(time.time()) - 5, "exp": int(expires), **claims}
    return f"{part({'alg': 'none'})}.{part(said)}."


class Endpoint:
    """An endpoint that gives tokens to the client `earshot` with the secret `secret-word`."""

    def __init__(self) -> None:
        self.lasts = 3600.0
        self.asked: list[dict[str, list[str]]] = []
        #: An answer (status, body) instead of a token.
        self.answer: tuple[int, bytes] | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.asked.append(parse_qs((await receive())["body"].decode()))
        keyed = base64.b64encode(b"earshot:secret-word").decode()
        if self.answer is not None:
            status, body = self.answer
        elif dict(scope["headers"]).get(b"authorization") != f"Basic {keyed}".encode():
            status, body = 401, b'{"error": "invalid_client"}'
        else:
            token = jwt(time.time() + self.lasts)
            status, body = 200, json.dumps({"access_token": token, "token_type": "Bearer", "expires_in": 9}).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    @contextmanager
    def running(self) -> Iterator[TokenClient]:
        """Yield a client of the running endpoint."""
        with behind_a_server(self) as url:
            yield TokenClient(f"{url}/token", "earshot", "secret-word")


def token(client: TokenClient) -> str:
    return asyncio.run(TokenProvider(client).token())


def test_token_is_asked_for_with_scope() -> None:
    endpoint = Endpoint()
    with endpoint.running() as client:
        assert token(client).count(".") == 2
        token(msgspec.structs.replace(client, scope="kafka audio"))
    first, second = endpoint.asked
    assert first == {"grant_type": ["client_credentials"]}
    assert second["scope"] == ["kafka audio"]


def test_nobody_there() -> None:
    where = f"http://127.0.0.1:{free_port()}/token"
    with pytest.raises(TokenFailed, match=f"the token endpoint {where} does not answer: "):
        token(TokenClient(where, "earshot", "secret-word"))


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ((503, b"<html>"), "answers 503 to the client earshot$"),
        ((400, b'{"error": "invalid_scope"}'), r"answers 400 \(invalid_scope\) to the client earshot$"),
        ((200, b'{"access_token": "opaque"}'), "gives a token that is no JWT with an expiry$"),
        ((200, json.dumps({"access_token": jwt(time.time() - 5)}).encode()), "gives a token that has expired: "),
    ],
)
def test_useless_answers_are_named(answer: tuple[int, bytes], reason: str) -> None:
    endpoint = Endpoint()
    endpoint.answer = answer
    with endpoint.running() as client, pytest.raises(TokenFailed, match=reason):
        token(client)


def test_wrong_secret_is_named_but_not_shown() -> None:
    with Endpoint().running() as client, pytest.raises(TokenFailed) as refused:
        token(msgspec.structs.replace(client, secret="another-word"))
    assert str(refused.value.args[0]).endswith("answers 401 (invalid_client) to the client earshot")


def test_last_token_is_used_while_the_endpoint_is_away_until_it_expires() -> None:
    endpoint = Endpoint()

    async def scene(client: TokenClient) -> None:
        provider = TokenProvider(client)
        first = await provider.token()
        endpoint.answer = 503, b""
        assert await provider.token() == first
        provider._expires = time.time() - 1
        with pytest.raises(TokenFailed):
            await provider.token()

    with endpoint.running() as client:
        asyncio.run(scene(client))
