"""Topics of a broker that is slow to know what it has made."""

from typing import Any

import pytest

from streams.kafka import topics
from topics.errors import ServiceError


class SlowAdmin:
    """A broker that lists its topics at the second request, and knows their partitions at the third description."""

    def __init__(self, known_at: float = 3) -> None:
        self.known_at = known_at
        self.lists = self.descriptions = 0

    async def list_topics(self) -> list[str]:
        self.lists += 1
        return ["a", "b"] if self.lists > 1 else ["a"]

    async def describe_topics(self, names: list[str]) -> list[dict[str, Any]]:
        self.descriptions += 1
        known = self.descriptions >= self.known_at
        return [{"topic": name, "partitions": [0, 1] if known or name == "a" else []} for name in names]


async def test_partitions_of_new_topic_are_awaited() -> None:
    admin = SlowAdmin()
    assert await topics._count_partitions(admin, ["a", "b"]) == {"a": 2, "b": 2}
    assert (admin.lists, admin.descriptions) == (4, 3)


async def test_topic_that_stays_unknown_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "VISIBLE_SECONDS", 0.3)
    with pytest.raises(ServiceError, match="Kafka does not show all topics"):
        await topics._count_partitions(SlowAdmin(known_at=float("inf")), ["a", "b"])
