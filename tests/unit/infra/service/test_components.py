"""What the service is made of: engines of jobs, lessons of own sounds, the garbage collector, voice models."""

import asyncio
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from unittest import mock

import pytest
from structlog.testing import capture_logs

from infra import models
from infra.engines.speech.speech_models import TOGETHER
from infra.service import own_sounds
from infra.service.jobs import JobServices
from infra.service.own_sounds import OwnSounds
from infra.service.speakers import OverlapModel
from infra.settings import Settings
from streams.models.loaded_models import LoadedModels
from tests.waiting import until
from topics.errors import EngineError, Unavailable


async def test_bundled_speech_engine_has_the_time_of_all_pieces_that_it_decodes_together(tmp_path: Path) -> None:
    async def times(**settings: str) -> set[float]:
        made = JobServices(Settings(data=tmp_path, **settings), *(mock.AsyncMock() for _ in range(3)))  # type: ignore[arg-type]
        await made.stop()
        return {engine.address.timeout_s for engine in made.engines if engine.name == "speech"}

    assert await times(speech_timeout="7", speech_concurrency="2") == {14}
    assert await times(speech_timeout="7", speech_concurrency="99") == {7 * TOGETHER}
    assert await times(speech_timeout="7", speech_url="http://127.0.0.1:9/v1/audio/transcriptions") == {7}


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


SCRIPT = """
import gc, weakref
from infra.service.garbage import Freezer

class Node:
    pass

def circle():
    node = Node()
    node.itself = node
    return node

gc.callbacks.append(Freezer())
before = gc.get_freeze_count()
held = [circle() for _ in range(before // 4)]
gc.collect()
assert not [one for one in gc.get_objects() if isinstance(one, Node)], "what survives is frozen"
seen = weakref.ref(held[0])
held.clear()
gc.collect()
assert seen() is not None
for _ in range(8):
    held += [[] for _ in range(before // 4)]
    gc.collect()
assert seen() is None, "garbage among what is frozen is found when that has doubled"
assert gc.get_freeze_count() >= len(held)
"""


def test_frozen_garbage_is_collected_later() -> None:
    """In a separate process, because it freezes all objects."""
    subprocess.run([sys.executable, "-c", SCRIPT], check=True)


def test_missing_model_is_logged_and_loaded_once_installed(tmp_path: Path) -> None:
    directory = tmp_path / "overlap"
    model = OverlapModel(directory)
    with capture_logs() as logs, pytest.raises(EngineError, match=r"^the model for it is missing or damaged$"):
        _ = model.manifest
    ((event, reason),) = [(line["event"], line["reason"]) for line in logs]
    assert event == "overlap.unusable"
    assert str(directory) in reason
    shutil.copytree(models.directory(models.OVERLAP), directory)
    assert model.manifest.name == "segmentation-overlap"
