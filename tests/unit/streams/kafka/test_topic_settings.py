"""The settings that topics are made with, and the comparison with those that are there."""

from __future__ import annotations

import pytest

from streams.kafka.topic_settings import alteration, longer_retention_ms, misfits, needed_settings
from topics import catalog

HOUR_MS = 3600 * 1000
DAY_MS = 24 * HOUR_MS
TOPICS = {topic.name: topic for topic in catalog.topics(DAY_MS)}
COMMANDS, CHANGELOG = TOPICS[catalog.COMMANDS], TOPICS[catalog.CHANGELOG]


def test_topics_of_audio_are_made_with_what_the_catalogue_says() -> None:
    assert needed_settings(COMMANDS) == {
        "cleanup.policy": "delete",
        "max.message.bytes": str(catalog.record_limit(catalog.DEFAULT_CHUNK_LIMIT)),
        "message.timestamp.type": "LogAppendTime",
        "retention.ms": str(DAY_MS),
        "segment.ms": str(HOUR_MS),
    }


@pytest.mark.parametrize("name", [catalog.CHANGELOG])
def test_compacted_topics_keep_what_an_owner_and_a_rebuild_need(name: str) -> None:
    settings = needed_settings(TOPICS[name])
    assert settings["cleanup.policy"] == "compact"
    assert settings["message.timestamp.type"] == "LogAppendTime"
    assert "retention.ms" not in settings
    assert settings["delete.retention.ms"] == str(catalog.KEEP_TOMBSTONES_MS)
    assert settings["min.compaction.lag.ms"] == str(catalog.COMPACTION_LAG_MS)
    assert int(settings["min.compaction.lag.ms"]) < int(settings["max.compaction.lag.ms"])


@pytest.mark.parametrize("chunk_limit", [catalog.DEFAULT_CHUNK_LIMIT, 64 * 1024 * 1024])
def test_a_segment_holds_the_largest_record(chunk_limit: int) -> None:
    for topic in catalog.topics(DAY_MS, chunk_limit):
        settings = needed_settings(topic)
        assert int(settings.get("segment.bytes", 2**30)) >= int(settings["max.message.bytes"])


@pytest.mark.parametrize(
    ("retention_ms", "segment_ms"), [(1000, 60_000), (HOUR_MS, 150_000), (DAY_MS, HOUR_MS), (30 * DAY_MS, 30 * HOUR_MS)]
)
def test_audio_stays_for_a_24th_longer_at_most_or_a_minute(retention_ms: int, segment_ms: int) -> None:
    settings = needed_settings(catalog.topics(retention_ms)[0])
    assert (settings["retention.ms"], settings["segment.ms"]) == (str(retention_ms), str(segment_ms))


@pytest.mark.parametrize(
    ("changes", "lines"),
    [
        ({}, []),
        ({"retention.ms": "-1"}, []),
        ({"retention.ms": "-1", "segment.ms": str(7 * DAY_MS)}, []),
        ({"retention.ms": str(DAY_MS + 1), "max.message.bytes": str(2**30)}, []),
        ({"segment.ms": "60000"}, []),
        ({"retention.ms": str(2 * DAY_MS), "segment.ms": str(2 * HOUR_MS)}, []),
        ({"segment.ms": str(2 * HOUR_MS)}, ["segment.ms=7200000, needed is 3600000 or less"]),
        ({"retention.ms": "1000"}, ["retention.ms=1000, needed is 86400000 or more"]),
        ({"max.message.bytes": "1000000"}, ["max.message.bytes=1000000, needed is 1114112 or more"]),
        ({"cleanup.policy": "compact"}, ["cleanup.policy=compact, needed is delete"]),
        (
            {"message.timestamp.type": "CreateTime"},
            ["message.timestamp.type=CreateTime, needed is LogAppendTime"],
        ),
        (
            {"cleanup.policy": "compact,delete", "retention.ms": "5"},
            ["cleanup.policy=compact,delete, needed is delete", "retention.ms=5, needed is 86400000 or more"],
        ),
    ],
    ids=repr,
)
def test_each_setting_that_does_not_do_is_named(changes: dict[str, str], lines: list[str]) -> None:
    assert [str(misfit) for misfit in misfits(COMMANDS, {**needed_settings(COMMANDS), **changes})] == lines


@pytest.mark.parametrize(
    ("name", "enough", "wrong"),
    [
        ("delete.retention.ms", str(2 * DAY_MS), "60000"),
        ("min.compaction.lag.ms", str(HOUR_MS), "0"),
        ("max.compaction.lag.ms", str(HOUR_MS), str(2**63 - 1)),
        ("min.cleanable.dirty.ratio", "0.1", "0.5"),
        ("segment.bytes", str(2**24), str(2**30)),
        ("segment.ms", "60000", str(7 * DAY_MS)),
    ],
)
def test_a_changelog_may_do_more_and_not_less(name: str, enough: str, wrong: str) -> None:
    needed = needed_settings(CHANGELOG)
    assert misfits(CHANGELOG, {**needed, name: enough}) == []
    assert [misfit.name for misfit in misfits(CHANGELOG, {**needed, name: wrong})] == [name]


@pytest.mark.parametrize(
    ("kept", "longer"), [("-1", -1), (str(DAY_MS + 1), DAY_MS + 1), (str(DAY_MS), None), ("5", None)]
)
def test_records_that_are_kept_longer_than_asked_are_noticed(kept: str, longer: int | None) -> None:
    assert longer_retention_ms(COMMANDS, {"retention.ms": kept}) == longer
    assert longer_retention_ms(CHANGELOG, {"retention.ms": kept}) is None


def test_settings_that_a_broker_does_not_tell_are_not_judged() -> None:
    assert misfits(COMMANDS, {}) == []


def test_one_command_alters_all_of_a_topic() -> None:
    wrong = misfits(COMMANDS, {**needed_settings(COMMANDS), "retention.ms": "5", "max.message.bytes": "7"})
    assert alteration("a:9092,b:9092", COMMANDS.name, wrong) == (
        "kafka-configs.sh --bootstrap-server a:9092,b:9092 --alter --entity-type topics "
        "--entity-name earshot.session.command.v1 --add-config max.message.bytes=1114112,retention.ms=86400000"
    )
