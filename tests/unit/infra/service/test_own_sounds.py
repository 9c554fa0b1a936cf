"""Lessons of own sounds take turns, because they compute in threads that uploads need too."""

import asyncio
import threading
from unittest import mock

import pytest

from infra.service import own_sounds
from infra.service.own_sounds import OwnSounds
from streams.models.loaded_models import LoadedModels
from tests.waiting import until
from topics.errors import Unavailable


async def test_lessons_take_turns_and_one_of_each_project_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    taught, may_end = mock.Mock(), threading.Event()
    taught.name = "Kettle"
    began: list[object] = []

    def study(marks: object, manifest: object) -> mock.Mock:
        began.append(marks)
        assert may_end.wait(30)
        return mock.Mock()

    monkeypatch.setattr(own_sounds, "_study", study)
    sounds = OwnSounds(mock.Mock(), mock.Mock(spec=LoadedModels, current=mock.Mock()))
    for name, answer in (("marks", "marks"), ("keep_learnt", None), ("sounds", [taught])):
        monkeypatch.setattr(sounds, name, mock.AsyncMock(return_value=answer))
    lessons = [asyncio.create_task(sounds.learn(project, "Kettle")) for project in ("apes", "bears", "cats")]
    await until(lambda: began)
    with pytest.raises(Unavailable, match="learning a sound already"):
        await sounds.learn("bears", "Kettle")
    lessons[2].cancel()
    assert len(began) == 1
    may_end.set()
    assert await lessons[0] is await lessons[1] is taught
    assert len(began) == 2
    assert await sounds.learn("bears", "Kettle") is taught
