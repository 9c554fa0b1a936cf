"""How a person with a browser signs in without typing a key."""

from typing import Protocol

import msgspec


class SignIn(msgspec.Struct, frozen=True):
    """Passes that count as keys until they end; null if the owner has no key."""

    project: str | None
    organization: str | None


class SignIns(Protocol):
    """Links that sign in once, and the passes that they give."""

    async def redeem(self, token: str) -> SignIn:
        """Return a link's passes; the link gives nothing more after that.

        Raises:
            NotFound: there is no such link, or it was used, or is too old.
            DirectoryDown: the database does not answer; the link is as good as before.
        """

    async def end(self, passed: str) -> bool:
        """End a pass; return False if it was none, or had ended.

        Raises:
            DirectoryDown: the database does not answer; the pass is as good as before.
        """
