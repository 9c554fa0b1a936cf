"""The lives of a node's process, each from a start to an end: was a run broken off by a crash, or from outside?"""

import secrets
from typing import Final

import msgspec

#: Characters of the name of a life, with which the names of its runs begin.
LIFE_CHARACTERS: Final = 8


def name_life() -> str:
    return secrets.token_hex(LIFE_CHARACTERS // 2)


class Lives(msgspec.Struct, frozen=True):
    """This life and earlier ones of the same node."""

    this: str = msgspec.field(default_factory=name_life)
    #: Lives that were ended from outside: killed, or with the machine. Crashed lives are not among them, nor those of
    #: other nodes, which are unknown here.
    killed: frozenset[str] = frozenset()

    def name_run(self) -> str:
        return self.this + secrets.token_hex(8)

    def was_killed(self, run: str) -> bool:
        return run[:LIFE_CHARACTERS] in self.killed

    def suspected(self, begun: int, lives: tuple[str, ...]) -> tuple[int, tuple[str, ...]]:
        """Return how many of the processes that began some work may have died of it, and their lives.

        This process has not, however often it lost the partition before it saw the end. Any other counts once, however
        often it began. Some of the `begun` processes may have no life in `lives`, because an earlier version ran them.
        """
        others = tuple(life for life in dict.fromkeys(lives) if life != self.this)
        return begun - len(lives) + len(others), others
