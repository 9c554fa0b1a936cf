"""The AsyncAPI document covers every topic and record; golden records of all versions are valid."""

from pathlib import Path
from typing import Any, Final

import jsonschema_rs
import msgspec
import pytest

from app.documents import asyncapi
from tests.examples import golden
from topics import catalog

DOCUMENT: Final = asyncapi.document()


def judge(kind: str) -> Any:
    """Return a validator for records of a kind."""
    return jsonschema_rs.Draft7Validator(
        {"$ref": f"#/components/schemas/{kind}", "components": DOCUMENT["components"]}, validate_formats=True
    )


def unpacked(value: bytes) -> Any:
    """Return the msgpack of a record or row as JSON, binary in base64."""
    return msgspec.to_builtins(msgspec.msgpack.decode(value[1:] if value[:1] == b"\x01" else value))


@pytest.mark.parametrize(
    "path", golden.examples(*golden.READERS, catalog.CHANGELOG), ids=lambda path: f"{path.parts[-3]}/{path.name}"
)
def test_golden_records_match_schema(path: Path) -> None:
    kind = type(golden.read(path)).__name__
    assert kind in DOCUMENT["channels"][golden.topic(path).replace(".", "-")]["messages"]
    judge(kind).validate(unpacked(path.with_suffix(".msgpack").read_bytes()))


def test_every_topic_lists_its_records() -> None:
    for topic in catalog.topics(0):
        channel = DOCUMENT["channels"][topic.name.replace(".", "-")]
        assert channel["address"] == topic.name
        if not topic.compact:
            assert set(channel["messages"]) >= set(topic.carries.split())


def test_array_items_are_titled_by_field() -> None:
    places = DOCUMENT["components"]["schemas"]["Chunk"]["items"]
    assert [place["title"] for place in places] == ["record", "command", "sequence", "data", "idempotency", "predict"]


def test_wrong_record_is_rejected() -> None:
    assert not judge("Chunk").is_valid(["chunk", "c", "seven", "AAAA"])
    assert not judge("Chunk").is_valid(["open", "c", 7, "AAAA"])
