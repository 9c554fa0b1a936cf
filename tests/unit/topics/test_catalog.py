"""The topic catalogue: names, and limits that fit together."""

from __future__ import annotations

import pytest

from topics import catalog, keys, record_codec
from topics.jobs.records import PART_BYTES, Part
from topics.records import Parked
from topics.sessions.records import Chunk

DAY_MS = 24 * 3600 * 1000


def test_names_are_unique_and_carry_a_version() -> None:
    names = [topic.name for topic in catalog.topics(DAY_MS)]
    assert len(set(names)) == len(names) == 9
    assert all(name.endswith(".v1") for name in names if name != catalog.CHANGELOG)


def test_what_is_compacted_is_kept_for_ever() -> None:
    for topic in catalog.topics(DAY_MS):
        assert topic.compact == (topic.name == catalog.CHANGELOG)
        assert (topic.retention_ms is None) == topic.compact


def test_audio_is_kept_as_long_as_asked() -> None:
    kept = {topic.name: topic.retention_ms for topic in catalog.topics(DAY_MS)}
    assert kept[catalog.COMMANDS] == kept[catalog.RESULTS] == DAY_MS


def test_every_topic_that_is_folded_has_a_dead_letter_topic_in_the_catalogue() -> None:
    names = {topic.name for topic in catalog.topics(DAY_MS)}
    assert set(catalog.PARKED) == {catalog.COMMANDS, catalog.RESULTS, catalog.JOB_COMMANDS, catalog.JOB_RESULTS}
    assert set(catalog.PARKED.values()) <= names


@pytest.mark.parametrize("chunk_limit", [1024, catalog.DEFAULT_CHUNK_LIMIT, 8 * 1024 * 1024])
def test_the_largest_chunk_and_the_largest_part_of_a_job_fit_everywhere(chunk_limit: int) -> None:
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
