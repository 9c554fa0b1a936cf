"""The loop watch lists every block with its stack, and nothing else."""

import asyncio
import time

import msgspec
import pytest

from benchmarks.blocked import MARK, Block, LoopWatch, table


async def test_what_blocks_the_loop_is_told_of(capsys: pytest.CaptureFixture[str]) -> None:
    LoopWatch(asyncio.get_running_loop(), 0.1)
    await asyncio.sleep(0.05)
    time.sleep(0.4)
    await asyncio.sleep(0.05)
    said = [line.removeprefix(MARK) for line in capsys.readouterr().out.splitlines() if line.startswith(MARK)]
    blocks = [msgspec.json.decode(line, type=Block) for line in said]
    (block,) = [block for block in blocks if "test_what_blocks_the_loop_is_told_of" in block.stack]
    assert 300 < block.wall < 5000
    assert block.ran < 100
    assert "tests/unit/benchmarks/test_blocked.py" in block.stack


def test_table_has_one_line_per_place() -> None:
    lines = table([Block(4, 1, "here"), Block(5, 1, "there"), Block(6, 2, "here")]).splitlines()
    assert lines[2:] == ["| 2 | 6.0 | 10 | 3 | here |", "| 1 | 5.0 | 5 | 1 | there |"]
