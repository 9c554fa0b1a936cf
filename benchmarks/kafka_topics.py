"""Topics of contenders that are not the service, on a Kafka of one node."""

from collections.abc import Iterable

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import for_code


async def make(bootstrap: str, names: Iterable[str], partitions: int) -> None:
    """Make topics that do not exist yet.

    Raises:
        KafkaError: the broker refuses.
    """
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        answer = await admin.create_topics([NewTopic(name, partitions, 1) for name in names])
    finally:
        await admin.close()
    for _, code, *reason in answer.topic_errors:
        if code:
            raise for_code(code)(*reason)
