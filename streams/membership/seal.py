"""Signatures of the messages between nodes."""

import hmac
from typing import Final

#: Kinds of signed messages, so that one kind is never accepted as another.
MEMBER: Final = b"member"
PLAN: Final = b"plan"
DEATH: Final = b"death"
SIGNATURE_BYTES: Final = 32


class Seal:
    """Signs the messages between nodes with the deployment's secret (HMAC-SHA-256). Any thread."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def put(self, kind: bytes, data: bytes) -> bytes:
        return self._signature(kind, data) + data

    def take(self, kind: bytes, sealed: bytes) -> bytes | None:
        """Return the data, or None if the signature is not valid."""
        signature, data = sealed[:SIGNATURE_BYTES], sealed[SIGNATURE_BYTES:]
        return data if hmac.compare_digest(signature, self._signature(kind, data)) else None

    def _signature(self, kind: bytes, data: bytes) -> bytes:
        return hmac.digest(self._secret, kind + b"\0" + data, "sha256")
