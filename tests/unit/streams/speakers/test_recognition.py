"""Recognition: turns, words, and behaviour without an engine."""

import asyncio
import io
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import soundfile

from streams.clients.transcriptions import TranscriptionClient
from streams.speakers.registered_speakers import MAX_LONG_RECORDINGS
from streams.speakers.transcriber import Transcriber
from streams.voice.speech_segments import FRAME, RATE
from tests.unit.streams.clients.http_engine import Asked, HttpEngine, reply
from tests.unit.streams.clocks import turn_clock
from tests.unit.streams.speakers.house import ORGANIZATION, Attentive, House, recognize, recorded, register
from tests.unit.streams.voice.tones import talk
from topics.ports.speakers import SpeakerTurn

pytestmark = pytest.mark.slow

MEETING = recorded(talk((0, 4.0), (1, 4.0), (None, 1.0), (2, 4.0), (0, 4.0)))


def spoken(house: House, data: bytes = MEETING, organization: str = ORGANIZATION, **given: Any) -> list[SpeakerTurn]:
    return list(house.run(lambda service: recognize(service, data, organization), **given))


@pytest.fixture
def house() -> House:
    """Anna and Bob are registered."""
    house = House()
    for name, voice in (("Anna", 2), ("Bob", 0)):
        house.run(partial(register, speaker=name, data=recorded(talk((voice, 4.0)))))
    house.engine.asked.clear()
    return house


def test_deployment_threshold_overrides_engine_threshold(house: House) -> None:
    """A mix of two voices matches either of them only at a low threshold."""
    mixed = recorded((talk((0, 4.0)) + talk((4, 4.0))) / np.float32(2))
    assert [turn.name for turn in spoken(house, mixed)] == ["Unknown 0"]
    (turn,) = spoken(house, mixed, threshold=0.6)
    assert turn.name == "Bob"
    assert turn.score == pytest.approx(0.707, abs=0.02)
    house.threshold = None
    assert [turn.name for turn in spoken(house, mixed)] == ["Bob"], "0.5 where nobody says"


def test_engine_threshold_drops_with_fewer_registered_speakers(house: House) -> None:
    """A voice between two of them has similarity 0.7 to either."""
    mixed = recorded((talk((0, 4.0)) + talk((4, 4.0))) / np.float32(2))
    for per_doubling, name in ((0.07, "Unknown 0"), (0.1, "Bob")):
        house.per_doubling = per_doubling
        assert [turn.name for turn in spoken(house, mixed)] == [name]
        assert [turn.name for turn in spoken(house, mixed, threshold=0.9)] == ["Unknown 0"], "the deployment's is fixed"


def test_too_short_speech_is_unlabeled(house: House) -> None:
    (turn,) = spoken(house, recorded(talk((None, 1.0), (0, 0.35), (None, 1.0))))
    assert (turn.unlabeled, turn.known, turn.score, turn.name) == (True, False, -1.0, "Unknown 0")
    assert house.engine.asked == []


def written(
    house: House,
    speech: HttpEngine,
    timeout_s: float = 60.0,
    data: bytes = MEETING,
    piece_s: float = 30.0,
    **given: Any,
) -> list[str]:
    """Return the transcripts of the turns."""

    async def scene() -> list[str]:
        async with speech.running():
            engine = TranscriptionClient(speech.address(timeout_s=timeout_s, model="m"))
            async with house.open(transcriber=Transcriber(engine, piece_s), **given) as service:
                found = await recognize(service, data)
            await engine.close()
            return [turn.transcript for turn in found]

    return asyncio.run(scene())


WORDS = {
    "text": "Good morning. Hello! Nice day, yes.",
    "words": [
        {"word": word, "start": start, "end": start + 0.3}
        for word, start in [("Good", 0.5), ("morning", 2.0), ("Hello", 5.0), ("Nice", 10.0), ("day", 11.0), ("yes", 14)]
    ],
}


def test_turns_have_transcripts(house: House) -> None:
    speech = HttpEngine(reply(WORDS))
    assert written(house, speech) == ["Good morning.", "Hello!", "Nice day,", "yes."]
    assert speech.asked[0].fields["model"] == [b"m"]


def test_voice_activity_is_computed_once(house: House) -> None:
    """For its words and for its speakers."""
    ear = Attentive()
    assert any(written(house, HttpEngine(reply(WORDS)), load_detector=lambda: ear))
    assert ear.frames == math.ceil(17 * RATE / FRAME)


@pytest.mark.parametrize("answer", [reply({}, 503), reply(b"["), None])
def test_failed_or_late_speech_engine_leaves_transcripts_empty(house: House, answer: bytes | None) -> None:
    assert written(house, HttpEngine(answer), timeout_s=0.1) == [""] * 4


async def test_enrolment_does_not_wait_for_transcription(house: House) -> None:
    begun = asyncio.Semaphore(0)
    speech = HttpEngine(lambda asked: begun.release())
    async with speech.running():
        engine = TranscriptionClient(speech.address(timeout_s=60.0))
        async with house.open(transcriber=Transcriber(engine, 30.0)) as service:
            waiting = [asyncio.create_task(recognize(service, MEETING)) for _ in range(MAX_LONG_RECORDINGS)]
            async with asyncio.timeout(30):
                for _ in waiting:
                    await begun.acquire()
                await register(service, "Cleo", recorded(talk((1, 4.0)), "FLAC"))
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
        await engine.close()


def test_transcripts_received_in_time_are_returned(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    arrived, tasks, transcribe = asyncio.Event(), set[asyncio.Task[None]](), TranscriptionClient.transcribe

    async def noted(client: TranscriptionClient, *arguments: Any, **named: Any) -> Any:
        answer = await transcribe(client, *arguments, **named)
        arrived.set()
        return answer

    async def be_late() -> None:
        await arrived.wait()
        turn_clock(monkeypatch, 30.0)  # Not so late for the embeddings, which are asked for at the same time.

    def first_only(asked: Asked) -> bytes | None:
        length = soundfile.info(io.BytesIO(asked.fields["file"][0])).duration
        if length > 7:
            return reply({"text": "here"})
        # The first answer has arrived by then, and the second is late.
        tasks.add(asyncio.create_task(be_late()))
        return None

    monkeypatch.setattr(TranscriptionClient, "transcribe", noted)
    data = recorded(talk((0, 8.0), (None, 2.0), (1, 5.0)))
    found = written(house, HttpEngine(first_only), timeout_s=30.0, data=data, piece_s=9.0)
    assert found == ["here", ""]


@pytest.mark.parametrize("deed", [register, recognize])
async def test_cancelled_request_leaves_no_tasks_running(deed: Callable[..., Any]) -> None:
    house = House()
    begun = asyncio.Event()
    house.engine.answer = lambda asked: begun.set()
    async with house.open() as service:
        call = register(service, "Anna", MEETING) if deed is register else recognize(service, MEETING)
        task = asyncio.create_task(call)
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert asyncio.all_tasks() - house.engine.connections == {asyncio.current_task()}
        house.engine.answer = house.answer
        assert await recognize(service, MEETING)
