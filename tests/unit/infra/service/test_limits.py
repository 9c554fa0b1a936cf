"""Bounds of the server that come from the system, or are handed to it."""

from __future__ import annotations

import resource
import threading
from typing import Any

import pytest

from infra.service import limits, listener, service
from infra.service.connections import Connections
from infra.service.options import connection_limits
from infra.settings import Settings
from topics.errors import ServiceError


def test_connections_leave_files_for_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "descriptors", lambda: 1000)
    assert connection_limits(Settings()).connections == 1000 - 512
    monkeypatch.setattr(listener, "descriptors", lambda: 1_000_000)
    assert connection_limits(Settings()).connections == 16_384


def test_a_connection_is_kept_for_a_while_after_a_request() -> None:
    application: Any = object()
    door = Connections(connection_limits(Settings()))
    assert service._server(application, Settings(), door).config.timeout_keep_alive == 75


def test_a_process_with_enough_of_everything_may_start() -> None:
    before = threading.active_count()
    limits.check()
    assert threading.active_count() == before


def test_what_the_machine_does_not_allow_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(said: str) -> None:
        with pytest.raises(ServiceError, match=said):
            limits.check()

    with monkeypatch.context() as patch:
        patch.setattr(listener, "descriptors", lambda: 64)
        refused(r"^64 open files are allowed \(ulimit -n\), at least 576 are needed$")
    with monkeypatch.context() as patch:
        patch.setattr(resource, "getrlimit", lambda limit: (1500 << 20, resource.RLIM_INFINITY))
        patch.setattr(listener, "descriptors", lambda: 1024)
        refused(r"^1500 MiB of addresses are allowed \(ulimit -v\), at least \d+ are needed$")

    def start(thread: threading.Thread) -> None:
        if threading.active_count() >= before + 9:
            raise RuntimeError("can't start new thread")
        plain(thread)

    plain, before = threading.Thread.start, threading.active_count()
    monkeypatch.setattr(threading.Thread, "start", start)
    refused(r"^9 more threads are allowed \(ulimit -u.*, 64 are needed$")
