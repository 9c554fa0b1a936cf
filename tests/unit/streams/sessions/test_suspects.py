"""Sessions that were unfinished when a process died: begun again with a record on the log, and failed after three."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec

from streams.models.protocol import Floats
from tests.unit.streams.audio.engines import Fingerprint
from tests.unit.streams.sessions.studio import STREAM, Studio, playing, sound, truth
from tests.waiting import until
from topics.errors import Unavailable
from topics.folding import DEADLY, DEATHS
from topics.sessions.records import Begun, Chunk

ONE, TWO = "A" * 24, "B" * 24
POISON = bytes(32_000)


class Death(BaseException):
    """Ends a lane, as it would end a process."""


class Mortal(Fingerprint):
    """Dies of silence."""

    def scores(self, patch: Floats) -> Floats:
        if patch.max() == patch.min():
            raise Death
        return super().scores(patch)


def begun(studio: Studio, session: str) -> list[int]:
    return [result.times for of, result in studio.emitted if of == session and isinstance(result, Begun)]


async def live(studio: Studio, *sessions: str, suspected: bool = True) -> bool:
    """Start a process that finds these sessions unfinished; return whether it lives to analyse them."""
    studio.restart()
    studio.suspects.add(sessions if suspected else ())
    await studio.start()
    for session in sessions:
        studio.analyser.enqueue(session)
    await until(lambda: studio.ended or not len(studio.analyser.ready))
    await studio.stop()
    return not studio.ended


async def test_what_ends_the_process_is_counted_and_failed_and_its_neighbour_is_not(tmp_path: Path) -> None:
    studio = Studio(Mortal(), tmp_path)
    await studio.send(ONE, STREAM, Chunk("c", 0, POISON))
    await studio.send(TWO, STREAM, Chunk("c", 0, sound(1)))
    lives = [await live(studio, ONE, TWO) for _ in range(DEATHS + 1)]
    assert lives == [False] * DEATHS + [True]
    assert begun(studio, ONE) == [1, 2, 3]
    assert max(begun(studio, TWO)) <= 2
    assert studio.failures(ONE) == [DEADLY]
    assert studio.failures(TWO) == []
    assert studio.scores(TWO) == truth(sound(1))
    assert studio.head(TWO).begun == 0


async def test_what_gets_further_is_no_suspect_any_more(tmp_path: Path) -> None:
    studio = Studio(Mortal(), tmp_path)
    await studio.send(ONE, STREAM, Chunk("c", 0, sound(1)))
    assert await live(studio, ONE)
    assert begun(studio, ONE) == [1]
    assert studio.head(ONE).begun == 0
    assert ONE not in studio.suspects
    await studio.send(ONE, Chunk("c", 1, POISON))
    assert not await live(studio, ONE, suspected=False)
    assert begun(studio, ONE) == [1]
    assert not await live(studio, ONE)
    assert begun(studio, ONE) == [1, 1]


async def test_a_fault_that_the_process_outlives_is_not_counted(tmp_path: Path) -> None:
    """The model is away: the log says that nothing died."""
    async with playing(tmp_path) as studio:
        await studio.send(ONE, msgspec.structs.replace(STREAM, model="elsewhere@1"), Chunk("c", 0, sound(1)))
        await asyncio.sleep(0.1)
        studio.analyser.forget(ONE)
        studio.suspects.add([ONE])
        studio.analyser.enqueue(ONE)
        await asyncio.sleep(0.1)
        assert studio.noted == [(ONE, Begun(0, 0, 0))]
        assert ONE not in studio.suspects
        studio.analyser.forget(ONE)


async def test_a_process_that_lost_the_partition_and_lives_is_not_counted(tmp_path: Path) -> None:
    """Each time the heartbeats were late, and the log took neither the scores nor that nothing died."""
    studio = Studio(Fingerprint(), tmp_path)
    await studio.send(ONE, STREAM, Chunk("c", 0, sound(1)))
    other = "the other node"
    for lives in (studio.lives.this,), (studio.lives.this, other), (other, studio.lives.this):
        await studio._emit(ONE, Begun(0, 0, len(lives), lives))
    studio.emitted.clear()
    async with studio:
        studio.suspects.add([ONE])
        studio.analyser.enqueue(ONE)
        await studio.settle()
    assert studio.emitted[0] == (ONE, Begun(0, 0, 2, (other, studio.lives.this)))
    assert studio.scores(ONE) == truth(sound(1))
    assert studio.head(ONE).begun_by == ()


async def test_a_process_is_counted_once_however_often_it_began(tmp_path: Path) -> None:
    studio = Studio(Fingerprint(), tmp_path)
    await studio.send(ONE, STREAM, Chunk("c", 0, sound(1)))
    await studio._emit(ONE, Begun(0, 0, DEATHS, ("other",) * DEATHS))
    assert await live(studio, ONE)
    assert begun(studio, ONE)[-1] == 2
    assert studio.scores(ONE) == truth(sound(1))


async def test_suspects_that_wait_for_their_turn_hold_no_lane(tmp_path: Path) -> None:
    """After a second crash they held all lanes, while one of them worked."""
    studio = Studio(Fingerprint(), tmp_path, workers=1)
    suspected = [f"{number:024}" for number in range(studio.analyser.actors)]
    for session in (*suspected, ONE):
        await studio.send(session, STREAM, Chunk("c", 0, sound(1)))
    studio.suspects.add(suspected)
    async with studio:
        async with studio.suspects.session_turn(alone=True):
            for session in (*suspected, ONE):
                studio.analyser.enqueue(session)
            await until(lambda: any(of == ONE for of, _ in studio.emitted))
            assert {of for of, _ in studio.emitted} == {ONE}
        await until(lambda: {of for of, _ in studio.emitted} == {ONE, *suspected})


async def test_a_suspect_stays_one_until_the_log_has_its_record(tmp_path: Path) -> None:
    studio = Studio(Mortal(), tmp_path)
    await studio.send(ONE, STREAM, Chunk("c", 0, sound(1)))
    studio.refusals.append(Unavailable("the log is away"))
    assert await live(studio, ONE)
    assert begun(studio, ONE) == [1]
    assert studio.scores(ONE) == truth(sound(1))
