"""A consumer group as anybody on the broker sees it: its members, and the removal of one."""

from aiokafka.client import AIOKafkaClient, CoordinationType
from aiokafka.protocol.group import LeaveGroupRequest
from confluent_kafka.admin import AdminClient


def members(bootstrap: str) -> tuple[str, list[str]]:
    """Return the name of a cluster's only group, and the ids of its members."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    (name,) = [one.group_id for one in admin.list_consumer_groups().result().valid]
    return name, sorted(member.member_id for member in admin.describe_consumer_groups([name])[name].result().members)


async def remove(bootstrap: str, group: str, member: str) -> int:
    """Remove a living member, as a node does that takes it for dead; return the broker's error, 0 if there is none."""
    client = AIOKafkaClient(bootstrap_servers=bootstrap)
    try:
        await client.bootstrap()
        coordinator = await client.coordinator_lookup(CoordinationType.GROUP, group)
        return int((await client.send(coordinator, LeaveGroupRequest(group, member))).error_code)
    finally:
        await client.close()
