"""Appends one record without waiting."""

from typing import Any

from streams.log import LogWriter


def append_soon(writer: LogWriter, topic: str, partition: int, key: Any, value: bytes | None, epoch: int = 0) -> None:
    """Append a record as rows are appended; a key may be missing."""
    writer.append_rows(topic, partition, {key: value}, epoch)
