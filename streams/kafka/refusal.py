"""Finds out why brokers are unreachable; the client libraries only report that none answered."""

import ssl
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

from aiokafka.conn import collect_hosts, create_conn
from aiokafka.errors import KafkaError

from streams.kafka.connection import KafkaConnection
from streams.kafka.tokens import TokenFailed

CONNECT_MS: Final = 5_000


async def refusal(connection: KafkaConnection, error: Exception) -> str:
    """Return why a broker is unreachable, as text for operators; if all are reachable, return `error` as text."""
    async with aclosing(_attempts(connection)) as attempts:
        async for fault in attempts:
            if fault is not None:
                return fault
    return f"Kafka at {connection.addresses}: {error!r}"


async def unreachable(connection: KafkaConnection) -> str | None:
    """Return why no broker is reachable, as text for operators, or None if one is."""
    first = None
    async with aclosing(_attempts(connection)) as attempts:
        async for fault in attempts:
            if fault is None:
                return None
            first = first or fault
    return first


async def _attempts(connection: KafkaConnection) -> AsyncGenerator[str | None, None]:
    """Connect to one broker after the other; yield the fault of each, None if it is reachable."""
    arguments = connection.aiokafka()
    for host, port, _ in collect_hosts(arguments.pop("bootstrap_servers")):
        try:
            opened = await create_conn(host, port, request_timeout_ms=CONNECT_MS, **arguments)
        except (OSError, KafkaError) as fault:  # A timeout is an OSError.
            yield f"Kafka at {host}:{port}: {_reason(fault)}"
        else:
            opened.close()
            yield None


def _reason(fault: Exception) -> str:
    match fault:
        case ssl.SSLCertVerificationError():
            return f"its certificate is not trusted: {fault.verify_message}"
        case ssl.SSLError():
            reason = (fault.reason or str(fault)).replace("_", " ").lower()
            return f"the TLS handshake failed ({reason}): does this port use TLS? See EARSHOT_KAFKA_SECURITY_PROTOCOL"
        case TokenFailed():
            return str(fault.args[0])
        case TimeoutError():
            return f"no answer in {CONNECT_MS // 1000} s"
        case OSError():
            return fault.strerror or str(fault)
        case _:
            return f"{type(fault).__name__}: {fault.args[0]}" if fault.args else type(fault).__name__
