"""Levels of windows for rules: measured only if a rule needs them, the same with listeners and after a restart."""

import asyncio
from pathlib import Path

import msgspec
import numpy as np
import pytest

from tests.unit.streams.sessions.studio import FILE, RATE, STREAM, Studio, pieces, playing
from topics.alarms.rules import AlarmRule, StoredRule
from topics.sessions.records import Sealed

LOUD = StoredRule("r", "p", 1, AlarmRule("loud", "loud", level=-20, cooldown=0, gap=0))


def steps(*levels: float) -> bytes:
    """Return half seconds of a sine with these levels (dBFS)."""
    at = np.arange(RATE // 2)
    wave = np.sin(2 * np.pi * 440 * at / RATE) * np.sqrt(2)
    return b"".join((wave * 10 ** (level / 20) * 32767).astype("<i2").tobytes() for level in levels)


S, F = "S" * 24, "F" * 24
QUIET, HIGH = -60.0, -10.0
AUDIO = steps(QUIET, QUIET, QUIET, HIGH, HIGH, QUIET, QUIET, QUIET)


async def play(studio: Studio, seconds: float = 0.5) -> None:
    await studio.send(S, STREAM)
    for number, data in enumerate(pieces(AUDIO, seconds)):
        await studio.upload(S, [data], number)
        await studio.settle()


@pytest.mark.parametrize("seconds", [0.5, 0.3, 4.0])
def test_loud_window_makes_an_alarm_with_its_level(tmp_path: Path, seconds: float) -> None:
    async def running() -> None:
        async with playing(tmp_path) as studio:
            studio.rules = [LOUD]
            await play(studio, seconds=seconds)
            [alarm] = studio.alarms
            # Half of the window is loud.
            assert (alarm.start_ms, alarm.end_ms, alarm.level) == (1000, 2000, -13.0)

    asyncio.run(running())


def test_listeners_come_and_go_beside_rules(tmp_path: Path) -> None:
    async def running() -> None:
        async with playing(tmp_path) as studio:
            studio.rules = [LOUD]
            await studio.send(S, STREAM)
            for number, data in enumerate(pieces(AUDIO)):
                if number == 2:
                    studio.analyser.taps.listen(project="p")
                if number == 4:
                    assert studio.analyser.taps.window(S, 1) is not None
                    studio.analyser.taps.leave(project="p")
                await studio.upload(S, [data], number)
                await studio.settle()
            assert [(one.start_ms, one.level) for one in studio.alarms] == [(1000, -13.0)]

    asyncio.run(running())


def test_level_is_known_after_a_restart(tmp_path: Path) -> None:
    async def running() -> None:
        async with playing(tmp_path) as studio:
            studio.rules = [LOUD]
            await studio.send(S, STREAM)
            for number, data in enumerate(pieces(AUDIO)):
                await studio.upload(S, [data], number)
                await studio.settle()
                await studio.stop()
                studio.restart()
                await studio.start()
            assert [(one.start_ms, one.level) for one in studio.alarms] == [(1000, -13.0)]

    asyncio.run(running())


def test_nothing_is_measured_without_such_a_rule(tmp_path: Path) -> None:
    async def running() -> None:
        async with playing(tmp_path) as studio:
            studio.rules = [msgspec.structs.replace(LOUD, rule=AlarmRule("heard", tags=("Tag_0",)))]
            await play(studio)
            assert all(new.levels == () for _, new in studio.written)
            studio.rules = [LOUD]
            await studio.send(F, FILE)
            await studio.upload(F, pieces(AUDIO))
            await studio.send(F, Sealed("c"))
            await studio.settle()
            assert all(new.levels == () for _, new in studio.written)

    asyncio.run(running())
