"""What a node waits for before it serves."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import SimpleNamespace

import pytest
from faust.types import TP
from structlog.testing import capture_logs

from streams.driver import owned as module
from streams.driver.owned import Owned
from topics.catalog import COMMANDS, PARKED

HERE = TP(COMMANDS, 0)


class Consumer:
    """Five commands are in the log, reading began at the third."""

    def assignment(self) -> set[TP]:
        return {HERE, TP(PARKED[COMMANDS], 0)}

    async def highwaters(self, *tps: TP) -> Mapping[TP, int]:
        return dict.fromkeys(tps, 5)

    async def earliest_offsets(self, *tps: TP) -> Mapping[TP, int]:
        return dict.fromkeys(tps, 0)

    def sought(self, tp: TP) -> int:
        return 2


def test_a_node_that_waits_says_for_what(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TELL_SECONDS", 0.02)
    conf = SimpleNamespace(canonical_url="http://here")

    async def scene() -> None:
        owned = Owned(SimpleNamespace(consumer=Consumer(), conf=conf), 1)
        with capture_logs() as told:
            waiting = asyncio.create_task(owned.catch_up(lambda: asyncio.sleep(0)))
            await asyncio.sleep(0.05)
            owned.folded(COMMANDS, 0, 4)
            await asyncio.sleep(0.03)
            assert not waiting.done()
            owned.folded(COMMANDS, 0, 5)
            await waiting
        assert owned.ready
        assert {line["event"] for line in told} == {"node.waiting"}
        at = f"{COMMANDS}/0"
        assert (told[0]["folded"], told[-1]["folded"]) == ({at: "2 of 5"}, {at: "4 of 5"})

    asyncio.run(scene())
