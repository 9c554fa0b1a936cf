"""Authentication: finds the holder of the key in a request's headers."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Generic, TypeVar

from app.http.call import Call
from app.http.metrics import Meters
from app.identity.keys import RETRY_SECONDS, KeyHeader, Keyring
from topics.errors import DirectoryDown, EarshotError, Unauthorized

T = TypeVar("T")


def own_header(call: Call, kind: KeyHeader) -> str:
    """Return the key in the header of its kind, or ""."""
    return call.header(kind.header).decode("latin-1").strip()


def bearer(call: Call, kind: KeyHeader | None = None) -> str:
    """Return the key in `Authorization: Bearer` (RFC 6750), or ""."""
    scheme, _, key = call.header(b"authorization").decode("latin-1").strip().partition(" ")
    return key.strip() if scheme.lower() == "bearer" else ""


class Authenticator(Generic[T]):
    """Finds the holders of keys of one kind, and counts the requests without a valid key."""

    def __init__(
        self, keyring: Keyring[T], meters: Meters, key_of: Callable[[Call, KeyHeader], str] = own_header
    ) -> None:
        """Read keys from requests by `key_of` and look up their holders in `keyring`."""
        self._keyring = keyring
        self.meters = meters
        self._key_of = key_of

    def key(self, call: Call) -> str:
        """Return the key that a request sends, or ""."""
        return self._key_of(call, self._keyring.kind)

    def watch(self, call: Call) -> None:
        """End another node's streamed answer once the request's key is no longer valid."""
        if key := self.key(call):
            call.ended = partial(self._ended, key, call.address)

    async def _ended(self, key: str, address: str) -> EarshotError:
        while True:
            try:
                await self._keyring.holder(key, address)
            except EarshotError:
                # The other node answers without a key, or ends the body itself.
                await asyncio.sleep(RETRY_SECONDS)
            else:
                return await self._keyring.ended(key)

    def forget(self, key: str, ended: bool) -> None:
        """Invalidate the verdict on a key; if the key has `ended`, refuse it from now on."""
        self._keyring.forget_key(key, ended)

    async def authenticate(self, call: Call) -> T:
        """Return the holder of a request's key; a streamed answer ends when the key does.

        Raises:
            Unauthorized: the request has no key, or an invalid one.
            DirectoryDown: the key is not cached and the directory does not answer.
            Unavailable: too many unknown keys were tried.
        """
        kind = self._keyring.kind
        key = self.key(call)
        try:
            holder = await self._keyring.holder(key, call.address)
        except Unauthorized:
            self.meters.key_failed(kind.name, "invalid" if key else "missing")
            raise
        except DirectoryDown:
            self.meters.key_failed(kind.name, "down")
            raise
        call.ended = partial(self._keyring.ended, key)
        return holder
