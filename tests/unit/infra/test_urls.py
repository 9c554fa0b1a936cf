"""Broker and database URLs: what they mean, what is wrong with them, and what may be shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra import urls
from infra.urls import Broker, Embedded, Kafka

DEFAULT = Path("somewhere/log")


@pytest.mark.parametrize(
    ("url", "broker"),
    [
        ("embedded://", Embedded(DEFAULT)),
        ("embedded://?sync=0", Embedded(DEFAULT, sync=False)),
        ("embedded://?sync=1", Embedded(DEFAULT)),
        ("embedded:///var/lib/log", Embedded(Path("/var/lib/log"))),
        ("embedded://here/log?sync=0", Embedded(Path("here/log"), sync=False)),
        ("kafka://one:9092", Kafka(("one:9092",))),
        (
            "kafka://10.0.0.1:9092, two.example:9093,[::1]:9094/",
            Kafka(("10.0.0.1:9092", "two.example:9093", "[::1]:9094")),
        ),
    ],
)
def test_brokers(url: str, broker: Broker) -> None:
    assert urls.parse_broker(url, DEFAULT) == broker


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("", "embedded:// or kafka://"),
        ("memory://", "embedded:// or kafka://"),
        ("kafka:one:9092", "embedded:// or kafka://"),
        ("embedded://?sync=2", "sync=0"),
        ("embedded://?sync=", "sync=0"),
        ("embedded://?fsync=0", "sync=0"),
        ("kafka://", "not host:port"),
        ("kafka://one", "'one' is not host:port"),
        ("kafka://one:9092,", "'' is not host:port"),
        ("kafka://one:0", "not host:port"),
        ("kafka://one:65536", "not host:port"),
    ],
)
def test_no_brokers(url: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        urls.parse_broker(url, DEFAULT)


@pytest.mark.parametrize(
    ("url", "driven"),
    [
        ("sqlite:///data/e.db", "sqlite+aiosqlite:///data/e.db"),
        ("sqlite:////var/e.db", "sqlite+aiosqlite:////var/e.db"),
        ("sqlite+aiosqlite:///e.db", "sqlite+aiosqlite:///e.db"),
        ("postgres://u:p@h/n", "postgresql+asyncpg://u:p@h/n"),
        ("postgresql://u:p%40@h:5/n?sslmode=require&a=1", "postgresql+asyncpg://u:p%40@h:5/n?ssl=require&a=1"),
        ("postgresql+asyncpg://h/n", "postgresql+asyncpg://h/n"),
    ],
)
def test_databases(url: str, driven: str) -> None:
    assert urls.database_url(url) == driven
    assert urls.database_url(driven) == driven


@pytest.mark.parametrize("url", ["", "sqlite", "mysql://h/n", "postgresql+psycopg://h/n", "sqlite://", "sqlite:///"])
def test_no_databases(url: str) -> None:
    with pytest.raises(ValueError, match=r"must begin|names no file"):
        urls.database_url(url)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql+asyncpg://u:secret@h/n", "postgresql+asyncpg://u:***@h/n"),
        ("postgresql://u:a:secret@b@h/n", "postgresql://u:***@h/n"),
        ("postgresql://h/n?user=u&password=secret&a=1", "postgresql://h/n?user=u&password=***&a=1"),
        ("kafka://u:secret@one:9092", "kafka://u:***@one:9092"),
        ("kafka://one:9092,two:9092", "kafka://one:9092,two:9092"),
        ("sqlite+aiosqlite:///data/e.db", "sqlite+aiosqlite:///data/e.db"),
        ("data", "data"),
    ],
)
def test_passwords_are_not_shown(url: str, shown: str) -> None:
    assert urls.redact_url(url) == shown
