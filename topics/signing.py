"""Signed texts that clients send back: tokens, cursors, passes and links.

A text is base64url of its content and of the first bytes of keyed BLAKE2b over a context and that content. The
context is not in the text: to open the text, name the same context.
"""

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from hashlib import blake2b
from hmac import compare_digest
from typing import Final

#: Without padding, so that the same bytes have only one text; longer texts are not ours.
_FORM: Final = re.compile(r"(?:[A-Za-z0-9_-]{4}){1,128}")
_UNIT: Final = 3


class Signer:
    """Seals and opens the texts of one purpose."""

    def __init__(self, secret: bytes, purpose: bytes, mac_bytes: int = 14) -> None:
        """Sign with a secret of 16 to 64 bytes; reject texts of another `purpose` (at most 16 bytes)."""
        if not 16 <= len(secret) <= 64:
            raise ValueError(f"the token secret has {len(secret)} bytes, it needs 16 to 64")
        self._keyed = blake2b(key=secret, digest_size=mac_bytes, person=purpose)
        self._mac_bytes = mac_bytes

    def padding(self, length: int) -> int:
        """Return how many bytes to add to a content of this length before it can be sealed."""
        return -(length + self._mac_bytes) % _UNIT

    def seal(self, content: bytes, context: bytes = b"") -> str:
        """Return the signed text; content and signature together must be a multiple of three bytes."""
        assert not self.padding(len(content))
        return urlsafe_b64encode(content + self._sign(context + content)).decode("ascii")

    def open(self, text: str, context: bytes = b"") -> bytes | None:
        """Return the content of a text, or None if it is forged, damaged, or for another context."""
        raw = urlsafe_b64decode(text) if _FORM.fullmatch(text) else b""
        content, mac = raw[: -self._mac_bytes], raw[-self._mac_bytes :]
        return content if compare_digest(mac, self._sign(context + content)) else None

    def _sign(self, data: bytes) -> bytes:
        mac = self._keyed.copy()
        mac.update(data)
        return mac.digest()
