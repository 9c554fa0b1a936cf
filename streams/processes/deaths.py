"""Counts the deaths of processes during some work; after too many, it is not tried again."""

from typing import Final

import msgspec

#: Work fails after this many starts without progress by processes that died.
DEATHS: Final = 3
#: The same for processes killed from outside: the only limit on causes that look like external kills.
KILLS: Final = 30
DEADLY: Final = "the analysis of this audio crashed three times; it is not retried"
KILLED: Final = f"the process was killed {KILLS} times during the analysis of this audio; it is not retried"


class Deaths(msgspec.Struct):
    """Deaths of processes during some work that made no progress: by themselves, and from outside."""

    own: int = 0
    kills: int = 0

    def __bool__(self) -> bool:
        return self.own > 0 or self.kills > 0

    def note(self, killed: bool) -> str | None:
        """Count a death; return the reason to stop retrying, or None to retry."""
        self.own += not killed
        self.kills += killed
        return self.verdict

    @property
    def verdict(self) -> str | None:
        """The reason to stop retrying; None to retry."""
        return DEADLY if self.own >= DEATHS else KILLED if self.kills >= KILLS else None
