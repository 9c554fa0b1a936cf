"""Browser sign-in without typing a key."""

from typing import Protocol

import msgspec


class SignIn(msgspec.Struct, frozen=True):
    """Session tokens, valid as keys until they end; null if there is no key."""

    project: str | None
    organization: str | None


class SignIns(Protocol):
    """One-time sign-in links, and their session tokens."""

    async def redeem(self, token: str) -> SignIn:
        """Return a link's session tokens, and use the link up.

        Raises:
            NotFound: there is no such link, or it was used, or is too old.
            DirectoryDown: the database does not answer; the link stays valid.
        """

    async def end(self, passed: str) -> bool:
        """End a token; return False if it was not valid.

        Raises:
            DirectoryDown: the database does not answer; the token stays valid.
        """
