"""The lives of a node's processes, to tell whether a run was ended by a crash or from outside."""

import secrets
from typing import Final

import msgspec

#: Length of the name of a life, which is the prefix of its runs' names.
LIFE_CHARACTERS: Final = 8


def name_life() -> str:
    return secrets.token_hex(LIFE_CHARACTERS // 2)


class Lives(msgspec.Struct, frozen=True):
    """The current life and earlier ones of the same node."""

    this: str = msgspec.field(default_factory=name_life)
    #: Earlier lives that were killed from outside or ended with the machine; not crashes, nor lives of other nodes.
    killed: frozenset[str] = frozenset()

    def name_run(self) -> str:
        return self.this + secrets.token_hex(8)

    def was_killed(self, run: str) -> bool:
        return run[:LIFE_CHARACTERS] in self.killed

    def suspected(self, lives: tuple[str, ...]) -> tuple[str, ...]:
        """Return those of `lives` whose processes may have died of some work, each once.

        This process has not, even if it lost the partition before the work ended.
        """
        return tuple(life for life in dict.fromkeys(lives) if life != self.this)
