"""Questions about topics to brokers that do not answer."""

from collections.abc import Callable

import pytest

from streams.kafka import topic_state
from streams.kafka.connection import KafkaConnection
from streams.kafka.topic_state import TopicStates
from topics.errors import Unavailable


@pytest.mark.parametrize("ask", [TopicStates.describe, TopicStates.settings])
def test_no_answer_is_unavailable(
    ask: Callable[[TopicStates, list[str]], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Shorter than the library's own wait for a connection, which this test does not wait for.
    monkeypatch.setattr(topic_state, "ANSWER_SECONDS", 0.01)
    with pytest.raises(Unavailable, match="Kafka does not answer"):
        ask(TopicStates(KafkaConnection(("127.0.0.1:1",))), ["commands"])
