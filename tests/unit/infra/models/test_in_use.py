"""If the second model's weights are damaged, the first model runs alone, and results say so."""

import asyncio
import shutil
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from unittest import mock

import pytest
from structlog.testing import capture_logs

from infra import models
from infra.models import in_use, manifests, registry
from infra.models.in_use import ModelInUse
from infra.models.registry import Registry
from streams.models import manifest
from streams.models.loaded_models import LoadedModels
from streams.processes.zygote_process import Zygote
from tests.waiting import until
from topics.choices import Choices
from topics.errors import BadRequest, EngineError, Unavailable
from topics.hearing import Hearing


@pytest.fixture
def bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Bundled sound models in a writable place."""
    copy = tmp_path / "bundle"
    for name in (models.DEFAULT, models.YAMNET, "sed_mini"):
        shutil.copytree(models.directory(name), copy / name)
    monkeypatch.setattr(registry, "BUNDLED", copy)
    monkeypatch.setattr(
        models, "directory", lambda name=models.DEFAULT: copy / name if (copy / name).is_dir() else Path(name)
    )
    return copy


def opened(data: Path) -> LoadedModels:
    def load(directory: Path) -> None:
        manifests.check_files(directory, manifest.read(directory))

    return ModelInUse(data, None, mock.Mock(spec=Zygote, load=load)).open()


def name_of(model: tuple[str, Hearing]) -> str:
    return model[0].partition("@")[0]


@pytest.mark.parametrize("file", ["model.onnx", "second.onnx", "stream_heads.npy"])
def test_damaged_bundle_falls_back_to_first_model(bundle: Path, tmp_path: Path, file: str) -> None:
    with (bundle / models.DEFAULT / file).open("r+b") as weights:
        weights.write(b"damaged")
    with capture_logs() as logs:
        loaded = opened(tmp_path / "data")
    assert [entry["event"] for entry in logs] == ["model.refused", "model.damaged"]
    assert file in (loaded.fault or "")
    model = loaded.hearing(None, (), Choices())
    assert (name_of(model), model[1]) == ("yamnet", Hearing(stands_in=True))
    # A model requested by name is used as requested.
    assert loaded.hearing("yamnet", (), Choices())[1] == Hearing()
    with pytest.raises(BadRequest, match="model: 'yamnet-ced' is not available, only sed-mini, yamnet"):
        loaded.hearing("yamnet-ced", (), Choices())


def test_damaged_unused_model_is_unavailable(bundle: Path, tmp_path: Path) -> None:
    (bundle / "sed_mini" / "model.onnx").write_bytes(b"")
    with capture_logs() as logs:
        loaded = opened(tmp_path / "data")
    assert [entry["event"] for entry in logs] == ["model.damaged"]
    model = loaded.hearing(None, (), Choices())
    assert (name_of(model), model[1].stands_in) == ("yamnet-ced", False)
    with pytest.raises(BadRequest, match="'sed-mini' is not available"):
        loaded.hearing("sed-mini", (), Choices())


@asynccontextmanager
async def watched(data: Path, load: Callable[[Path], None]) -> AsyncIterator[LoadedModels]:
    model = ModelInUse(data, None, mock.Mock(spec=Zygote, load=load))
    loaded = model.open()
    watching = asyncio.create_task(model.watch(loaded))
    try:
        yield loaded
    finally:
        watching.cancel()


@pytest.mark.parametrize("fault", [EngineError("no model"), Unavailable("no process"), OSError("too many open files")])
async def test_failed_change_is_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Exception) -> None:
    """The operator chooses an unusable model again; a passing fault needs no action."""
    monkeypatch.setattr(in_use, "WATCH_SECONDS", 0.01)
    faults: list[Exception] = []

    def load(directory: Path) -> None:
        if faults:
            raise faults.pop()

    async with watched(tmp_path, load) as loaded:
        faults.append(fault)
        Registry(tmp_path).use("yamnet")
        await until(lambda: not faults)
        if isinstance(fault, EngineError):
            Registry(tmp_path).use("yamnet")
        await until(lambda: loaded.current.manifest.name == "yamnet")


async def test_change_does_not_stop_loop_while_another_model_loads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(in_use, "WATCH_SECONDS", 0.01)
    begun, may_end = threading.Event(), threading.Event()
    slow = models.directory("sed_mini")

    def load(directory: Path) -> None:
        if directory == slow:
            begun.set()
            assert may_end.wait(60), "the loop waits for the model"

    async with watched(tmp_path, load) as loaded:
        loading = asyncio.create_task(asyncio.to_thread(loaded.engine, manifest.read(slow).model_id))
        await until(begun.is_set)
        Registry(tmp_path).use("yamnet")
        await until(lambda: loaded.current.manifest.name == "yamnet")
        may_end.set()
        await loading
