"""Records to bytes and back, everything that is no record, and topics with fitting limits."""

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from tests.examples import golden
from topics import catalog, keys, record_codec, rows
from topics.errors import RecordError
from topics.jobs.records import PART_BYTES, JobCommand, JobResult, Part
from topics.records import Parked, Record
from topics.sessions.records import Chunk, SessionCommand

DAY_MS = 24 * 3600 * 1000


def test_topic_catalog_is_consistent() -> None:
    topics = {topic.name: topic for topic in catalog.topics(DAY_MS)}
    assert len(topics) == 7
    assert all(name.endswith(".v1") for name in topics if name != catalog.CHANGELOG)
    # Compacted topics are kept forever, and audio for the requested time.
    assert {name for name, topic in topics.items() if topic.compact or topic.retention_ms is None} == {
        catalog.CHANGELOG
    }
    assert {topics[name].retention_ms for name in catalog.FOLDED} == {DAY_MS}
    assert catalog.PARKED.keys() == catalog.FOLDED
    assert set(catalog.PARKED.values()) <= topics.keys()


@pytest.mark.parametrize("chunk_limit", [1024, catalog.DEFAULT_CHUNK_LIMIT, 8 * 1024 * 1024])
def test_largest_chunk_and_job_part_fit_topic_limits(chunk_limit: int) -> None:
    """The record of each, the same record parked, and the metadata around both."""
    limits = {topic.name: topic.max_bytes for topic in catalog.topics(DAY_MS, chunk_limit)}
    beside = keys.ID_LENGTH + 1024
    for topic, largest in (
        (catalog.COMMANDS, Chunk("c" * 64, 2**63, bytes(chunk_limit), bytes(16))),
        (catalog.JOB_COMMANDS, Part("c" * 64, "u" * 64, 2**31, bytes(PART_BYTES))),
    ):
        record = record_codec.encode(largest)
        assert len(record) + beside <= limits[topic]
        parked = record_codec.encode(Parked(topic, 63, 2**63, "x" * 4096, bytes(keys.ID_LENGTH), record))
        assert len(parked) + beside <= limits[catalog.PARKED[topic]]
    assert limits[catalog.COMMANDS] == catalog.record_limit(chunk_limit)


RECORDS = golden.examples(*golden.READERS)
ROWS = golden.examples(catalog.CHANGELOG)
DECODERS: list[Callable[[bytes | None], Record]] = [
    record_codec.decode_command,
    record_codec.decode_job_command,
    record_codec.decode_job_result,
    record_codec.decode_parked,
]
FOLDED = list(catalog.PARKED)


def label(path: Path) -> str:
    return f"{path.parts[-3]}/{path.name}"


@pytest.mark.parametrize("path", RECORDS, ids=label)
def test_golden_record_round_trips(path: Path) -> None:
    data = path.with_suffix(".msgpack").read_bytes()
    assert record_codec.encode(golden.read(path)) == data


@pytest.mark.parametrize("path", ROWS, ids=label)
def test_golden_row_round_trips(path: Path) -> None:
    data = path.with_suffix(".msgpack").read_bytes()
    assert rows.encode(golden.read(path)) == data


@pytest.mark.parametrize("path", ROWS, ids=label)
def test_truncated_or_newer_row_is_rejected(path: Path) -> None:
    read, data = golden.reader(path), rows.encode(golden.read(path))
    for end in range(len(data)):
        with pytest.raises(RecordError, match="not a row"):
            read(data[:end])
    with pytest.raises(RecordError, match="row version 2 is not known"):
        read(b"\x02" + data[1:])


@pytest.mark.parametrize("path", [*RECORDS, *ROWS], ids=label)
def test_json_twin_matches_golden_file(path: Path) -> None:
    """The twin holds the value of each field, so bytes never change their meaning."""
    assert golden.readable(golden.read(path)) == path.with_suffix(".json").read_text()


def test_every_record_type_has_an_example() -> None:
    assert {type(golden.read(path)) for path in RECORDS} == set(Record.__subclasses__())
    assert {path.name.split("-")[0] for path in ROWS} == golden.ROW_READERS.keys()


def test_every_record_type_belongs_to_a_topic() -> None:
    unions = (SessionCommand, JobCommand, JobResult)
    assert {Parked}.union(*map(get_args, unions)) == set(Record.__subclasses__())


def test_every_golden_file_is_read() -> None:
    present = {path for path in golden.HERE.glob("earshot*/**/*") if path.is_file()}
    assert present == {path.with_suffix(form) for path in (*RECORDS, *ROWS) for form in (".msgpack", ".json")}


@pytest.mark.parametrize("decode", DECODERS)
@pytest.mark.parametrize(
    ("value", "cause"), [(None, "no value"), (b"", "no value"), (b"\x02later", "version 2 is not known")]
)
def test_record_without_value_or_of_newer_version_is_rejected(
    decode: Callable[[bytes | None], object], value: bytes | None, cause: str
) -> None:
    with pytest.raises(RecordError, match=cause):
        decode(value)


@pytest.mark.parametrize("path", RECORDS, ids=label)
def test_truncated_record_is_rejected(path: Path) -> None:
    data = record_codec.encode(golden.read(path))
    for end in range(len(data)):
        with pytest.raises(RecordError):
            golden.reader(path)(data[:end])


@pytest.mark.parametrize(("topic", "other"), list(itertools.permutations(FOLDED, 2)))
def test_record_of_another_topic_is_rejected(topic: str, other: str) -> None:
    for path in golden.examples(other):
        with pytest.raises(RecordError, match="not a record"):
            golden.READERS[topic](record_codec.encode(golden.read(path)))


@pytest.mark.parametrize(
    "body",
    [
        ["chunk", 5, 0, b""],
        ["chunk", "c", "0", b""],
        ["chunk", "c", 0, 7],
        ["chunk", "c"],
        ["open", "c", "film", "audio/wav", "p", 1000, 500],
        ["nothing"],
        {"t": "seal", "command": "c"},
        "seal",
        [],
    ],
    ids=repr,
)
def test_record_with_wrong_types_is_rejected(body: object) -> None:
    with pytest.raises(RecordError, match="not a record"):
        record_codec.decode_command(record_codec.VERSION + msgspec.msgpack.encode(body))


@pytest.mark.parametrize(
    "body",
    [b"\x91\xa1\x80", b"\x91" * 100_000, b"\x93\xa4seal\xa1c" + b"\x91" * 100_000],
    ids=["no text", "deep", "deep in a field"],
)
def test_undecodable_record_is_rejected(body: bytes) -> None:
    with pytest.raises(RecordError, match="not a record"):
        record_codec.decode_command(record_codec.VERSION + body)
