"""Bounds of the server that come from the system, or are handed to it."""

from __future__ import annotations

from typing import Any

import pytest

from infra.service import listener, service
from infra.service.connections import Connections
from infra.settings import Settings


def test_connections_leave_files_for_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "descriptors", lambda: 1000)
    assert service._connection_limits(Settings()).connections == 1000 - 512
    monkeypatch.setattr(listener, "descriptors", lambda: 1_000_000)
    assert service._connection_limits(Settings()).connections == 16_384


def test_a_connection_is_kept_for_a_while_after_a_request() -> None:
    application: Any = object()
    door = Connections(service._connection_limits(Settings()))
    assert service._server(application, Settings(), door).config.timeout_keep_alive == 75
