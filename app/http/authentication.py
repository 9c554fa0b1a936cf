"""Who sends a request: the holder of the key in one of its headers."""

from __future__ import annotations

from typing import Generic, TypeVar

from app.http.call import Call
from app.http.keys import Keyring
from app.http.metrics import Meters
from topics.errors import DirectoryDown, Unauthorized

T = TypeVar("T")


class Authenticator(Generic[T]):
    """Finds the holders of keys of one kind, and counts the requests that have no valid key."""

    def __init__(self, keyring: Keyring[T], meters: Meters) -> None:
        self._keyring = keyring
        self._meters = meters

    async def authenticate(self, call: Call) -> T:
        """Return whom the key of a request speaks for.

        Raises:
            Unauthorized: the request has no key, or an invalid one.
            DirectoryDown: the key is not remembered and the directory does not answer.
            Unavailable: too many keys that nobody holds were tried.
        """
        kind = self._keyring.kind
        key = call.header(kind.header).decode("latin-1").strip()
        try:
            return await self._keyring.holder(key, call.address)
        except Unauthorized:
            self._meters.key_failed(kind.name, "invalid" if key else "missing")
            raise
        except DirectoryDown:
            self._meters.key_failed(kind.name, "down")
            raise
