"""Models change under sessions: each session keeps the one that it was opened with, and waits for it."""

from __future__ import annotations

from pathlib import Path

import msgspec

from streams.models.protocol import Floats, SoundEngine
from tests.unit.streams.audio.engines import Fingerprint, fingerprint
from tests.unit.streams.sessions.studio import FILE, STREAM, Studio, pieces, playing, sound, truth
from tests.waiting import until
from topics.errors import EngineError
from topics.sessions.records import Opened, Scored, Sealed

ONE, TWO = "1" * 24, "2" * 24


class Other(Fingerprint):
    """A model with other scores."""

    def __init__(self) -> None:
        super().__init__(name="other")

    def scores(self, patch: Floats) -> Floats:
        return 1 - fingerprint(patch)


def opened(kind: Opened, engine: SoundEngine) -> Opened:
    return msgspec.structs.replace(kind, model=engine.manifest.model_id)


def models_of(studio: Studio, session: str) -> set[str]:
    return {result.model for of, result in studio.emitted if of == session and isinstance(result, Scored)}


async def test_a_session_keeps_the_model_that_it_was_opened_with(tmp_path: Path) -> None:
    first, second = Fingerprint(), Other()
    audio = sound(4)
    async with playing(tmp_path, first) as studio:
        chunks = pieces(audio)
        await studio.send(ONE, opened(STREAM, first))
        await studio.upload(ONE, chunks[:3])
        await studio.settle()
        studio.models.use(second)
        await studio.send(TWO, opened(FILE, second))
        await studio.upload(ONE, chunks[3:], 3)
        await studio.upload(TWO, chunks)
        await studio.send(ONE, Sealed("c"))
        await studio.send(TWO, Sealed("c"))
        await studio.settle()
    assert models_of(studio, ONE) == {first.manifest.model_id}
    assert models_of(studio, TWO) == {second.manifest.model_id}
    assert studio.scores(ONE) == truth(audio)
    assert len(studio.scores(TWO)) == len(truth(audio))
    assert studio.scores(TWO) == truth(audio, second)


async def test_a_session_of_a_model_that_is_not_here_waits_and_loses_nothing(tmp_path: Path) -> None:
    second = Other()
    audio = sound(2)
    async with playing(tmp_path, Fingerprint()) as studio:
        await studio.send(ONE, opened(STREAM, second))
        await studio.upload(ONE, pieces(audio))
        await studio.send(ONE, Sealed("c"))
        await studio.send(TWO, STREAM)
        await studio.upload(TWO, pieces(audio))
        await until(lambda: studio.emitted)
        assert models_of(studio, ONE) == set()
        assert studio.failures(ONE) == []
        studio.models.use(second)
        await studio.settle()
    assert studio.scores(ONE) == truth(audio, second)
    assert studio.scores(TWO) == truth(audio)


async def test_a_session_without_a_model_goes_on_with_that_of_its_windows(tmp_path: Path) -> None:
    """Sessions from before models could change name none."""
    first, second = Fingerprint(), Other()
    audio = sound(3)
    async with playing(tmp_path, first) as studio:
        chunks = pieces(audio)
        await studio.send(ONE, STREAM)
        await studio.upload(ONE, chunks[:3])
        await studio.settle()
        studio.models.use(second)
        studio.analyser.forget(ONE)
        await studio.upload(ONE, chunks[3:], 3)
        await studio.send(ONE, Sealed("c"))
        await studio.settle()
    assert studio.scores(ONE) == truth(audio)


async def test_a_model_that_cannot_be_loaded_is_a_sentence_in_the_log(tmp_path: Path) -> None:
    seen: list[str] = []
    async with playing(tmp_path) as studio:

        def refuse(model: str) -> SoundEngine:
            seen.append(model)
            raise EngineError("damaged")

        studio.models._load = refuse
        await studio.send(ONE, msgspec.structs.replace(STREAM, model="gone@1-2"))
        await studio.upload(ONE, pieces(sound(1)))
        await until(lambda: len(seen) >= 2)
        studio.analyser.forget(ONE)
    assert set(seen) == {"gone@1-2"}
    assert studio.emitted == []
