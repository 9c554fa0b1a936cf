"""Asks brokers for the state of topics: ids, partitions, copies, settings, and what this user may do with them."""

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Final

import msgspec
import structlog
from confluent_kafka import KafkaError, KafkaException, TopicCollection, admin

from streams.kafka.connection import KafkaConnection
from topics.errors import Unavailable

log = structlog.get_logger(__name__)

_library: Any = admin

ANSWER_SECONDS: Final = 15.0
#: What a service does with its topics.
NEEDED: Final = ("READ", "WRITE")


class TopicState(msgspec.Struct, frozen=True):
    """A topic on the brokers."""

    id: str
    partitions: int
    #: The number of replicas of the partition that has the fewest.
    copies: int
    #: The operations that the service needs and this user may not do; empty if the broker does not say.
    denied: tuple[str, ...] = ()


class TopicStates:
    """Asks about topics by their names on the brokers. Any thread; calls block, and raise Unavailable."""

    def __init__(self, connection: KafkaConnection) -> None:
        # Errors are raised anyway; librdkafka would also print every connection attempt to stderr.
        self._client: Any = _library.AdminClient(
            {**connection.librdkafka(), "log_level": 2, "reconnect.backoff.max.ms": 1000}
        )

    def brokers(self) -> int:
        """Return the number of live brokers."""
        try:
            return len(self._client.list_topics(timeout=ANSWER_SECONDS).brokers)
        except KafkaException as error:
            raise _unavailable(error) from error

    def describe(self, names: Sequence[str]) -> dict[str, TopicState]:
        """Return the state of each topic that exists."""
        asked = self._client.describe_topics(
            TopicCollection(list(names)), include_authorized_operations=True, request_timeout=ANSWER_SECONDS
        )
        found = {name: _answer(future, KafkaError.UNKNOWN_TOPIC_OR_PART) for name, future in asked.items()}
        return {name: _state(topic) for name, topic in found.items() if topic is not None}

    def settings(self, names: Sequence[str]) -> dict[str, Mapping[str, str]]:
        """Return the settings of each topic; of those that this user may not read, none, and log it."""
        resources = [_library.ConfigResource(_library.ResourceType.TOPIC, name) for name in names]
        settings: dict[str, Mapping[str, str]] = {}
        for resource, future in self._client.describe_configs(resources, request_timeout=ANSWER_SECONDS).items():
            found = _answer(future, KafkaError.TOPIC_AUTHORIZATION_FAILED)
            if found is None:
                log.warning("topic.not_compared", topic=resource.name, error="this user may not read its settings")
            settings[resource.name] = {name: entry.value for name, entry in (found or {}).items()}
        return settings


def _answer(future: Future[Any], accepted: int) -> Any:
    """Return what the brokers answered, None if it is the `accepted` error."""
    try:
        return future.result(ANSWER_SECONDS)
    except TimeoutError as error:
        raise Unavailable(f"Kafka does not answer: nothing came for {ANSWER_SECONDS:.0f} s") from error
    except KafkaException as error:
        if error.args[0].code() == accepted:
            return None
        raise _unavailable(error) from error


def _state(described: Any) -> TopicState:
    may = described.authorized_operations
    return TopicState(
        str(described.topic_id),
        len(described.partitions),
        min((len(partition.replicas) for partition in described.partitions), default=0),
        tuple(sorted(set(NEEDED) - {one.name for one in may})) if may else (),
    )


def _unavailable(error: KafkaException) -> Unavailable:
    return Unavailable(f"Kafka does not answer: {error.args[0].str()}")
