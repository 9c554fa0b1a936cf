"""Whose turn the next request of a connection takes."""

from types import SimpleNamespace
from typing import Any

import pytest

from app.identity.keys import PROJECT, KeyRateLimiter, Keyring
from app.senders import sender_of
from topics.errors import NotOwned
from topics.ports.directory import Principal

HERE, AWAY = "a" * 24, "b" * 24


class Sessions:
    def view(self, session: str) -> Any:
        if session == AWAY:
            raise NotOwned("it is at another node")
        return SimpleNamespace(opened=SimpleNamespace(project="of-session")) if session == HERE else None


@pytest.mark.parametrize(
    ("headers", "session", "expected"),
    [
        ({b"x-api-key": b" good "}, HERE, "of-key"),
        ({b"authorization": b"bearer good"}, "", "of-key"),
        ({b"x-api-key": b"unknown"}, HERE, "of-session"),
        ({}, HERE, "of-session"),
        ({}, AWAY, "192.0.2.1"),
        ({b"x-api-key": b"unknown"}, "c" * 24, "192.0.2.1"),
        ({}, "no id", "192.0.2.1"),
    ],
)
async def test_sender_is_project_of_key_or_session_else_address(
    headers: dict[bytes, bytes], session: str, expected: str
) -> None:
    async def ask(key: str) -> Principal | None:
        return Principal("of-key", "organization") if key == "good" else None

    keyring = Keyring(PROJECT, ask, 60.0, KeyRateLimiter(10.0))
    await keyring.holder("good")
    sessions: Any = Sessions()
    scope = {"headers": list(headers.items()), "client": ("192.0.2.1", 1), "path_params": {"session_id": session}}
    assert sender_of(keyring, sessions)(scope) == expected


async def test_sender_of_scope_without_route_and_client_is_empty() -> None:
    async def ask(key: str) -> Principal | None:
        raise AssertionError

    sessions: Any = Sessions()
    assert sender_of(Keyring(PROJECT, ask, 60.0, KeyRateLimiter(10.0)), sessions)({"headers": []}) == ""
