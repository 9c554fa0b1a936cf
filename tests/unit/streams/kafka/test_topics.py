"""The settings that topics are made with, and the comparison with those that are there."""

from __future__ import annotations

import pytest

from streams.kafka.topics import _differing_settings, configuration
from topics import catalog

DAY_MS = 24 * 3600 * 1000
COMMANDS, CHANGELOG = catalog.topics(DAY_MS)[0], catalog.topics(DAY_MS)[-1]


def test_topics_are_made_with_what_the_catalogue_says() -> None:
    assert configuration(COMMANDS) == {
        "cleanup.policy": "delete",
        "max.message.bytes": str(catalog.record_limit(catalog.DEFAULT_CHUNK_LIMIT)),
        "retention.ms": str(DAY_MS),
    }
    assert configuration(CHANGELOG)["cleanup.policy"] == "compact"
    assert "retention.ms" not in configuration(CHANGELOG)


@pytest.mark.parametrize(
    ("changes", "differences"),
    [
        ({}, []),
        ({"retention.ms": "-1"}, []),
        ({"retention.ms": str(DAY_MS + 1), "max.message.bytes": str(2**30)}, []),
        ({"retention.ms": "1000"}, ["retention.ms=1000, needed is 86400000"]),
        ({"max.message.bytes": "1000000"}, ["max.message.bytes=1000000, needed is 1114112"]),
        ({"cleanup.policy": "compact"}, ["cleanup.policy=compact, needed is delete"]),
        (
            {"cleanup.policy": "compact,delete", "retention.ms": "5"},
            ["cleanup.policy=compact,delete", "retention.ms=5"],
        ),
    ],
    ids=repr,
)
def test_topics_that_are_there_are_differing_settingsd(changes: dict[str, str], differences: list[str]) -> None:
    lines = _differing_settings(COMMANDS, {**configuration(COMMANDS), **changes})
    assert len(lines) == len(differences)
    for line, part in zip(lines, differences, strict=True):
        assert line.startswith(f"{COMMANDS.name} has {part}")


def test_settings_that_a_broker_does_not_tell_are_not_judged() -> None:
    assert _differing_settings(COMMANDS, {}) == []
