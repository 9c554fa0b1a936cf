"""What the rules of sessions and those of jobs have in common: where a command stands, and the answer to it."""

from __future__ import annotations

from enum import StrEnum
from typing import Generic, TypeVar

import msgspec

H = TypeVar("H")


class Receipt(msgspec.Struct, frozen=True, array_like=True):
    """What is remembered of an upload that had an Idempotency-Key."""

    key: bytes
    digest: bytes


class Verdict(msgspec.Struct, frozen=True):
    """The answer to a command: an HTTP status, the next chunk number, and a message when refused."""

    status: int
    next: int = 0
    error: str | None = None


class Effect(StrEnum):
    """What the stream does besides writing the head."""

    KEEP_OPENED = "keep the opening record"
    KEEP_CHUNK = "write the chunk row: log offset, length, hash"
    KEEP_RECEIPT = "remember the idempotency key of the chunk"
    ANALYSE = "tell the analyser that there is work"
    WATCH = "enter the session in the expiry index"
    UNWATCH = "drop the entry of the expiry index that led here"
    ERASE = "delete every row of the session and cancel its inference"


class Step(msgspec.Struct, Generic[H], frozen=True):
    """The outcome of one command."""

    head: H | None
    verdict: Verdict
    effects: tuple[Effect, ...] = ()


class Arrival(msgspec.Struct, frozen=True):
    """Where and when a command stands in the log, and what is known of an earlier upload of the same chunk."""

    offset: int
    #: Log time in milliseconds.
    at: int
    digest: bytes = b""
    receipt: Receipt | None = None
