"""Places for what libraries write where the file system is read-only, as in an image."""

import errno
import os
from pathlib import Path

import pytest

from infra import scratch
from infra.errors import WrongSetting, variable


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data directory beside which nothing can be written."""
    data = tmp_path / "data"
    monkeypatch.setenv(variable("data"), str(data))
    monkeypatch.setattr(scratch, "_is_writable", lambda directory: directory.is_relative_to(data))
    return data


def test_kernels_of_an_image_are_copied_to_the_data_directory(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = tmp_path / "image"
    (image / "audio").mkdir(parents=True)
    for version in (b"first", b"next"):
        (image / "audio" / "index").write_bytes(version)
        monkeypatch.setenv(scratch.KERNELS, str(image))
        scratch.prepare()
        kernels = Path(os.environ[scratch.KERNELS])
        assert kernels.is_relative_to(data)
        assert (kernels / "audio" / "index").read_bytes() == version


def test_data_directory_that_is_needed_and_cannot_be_written_is_told(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data.touch()
    monkeypatch.setenv(scratch.KERNELS, "/proc/kernels")
    with pytest.raises(WrongSetting, match=f"^EARSHOT_DATA: {data} cannot be written: "):
        scratch.prepare()


def test_full_disk_is_told_unless_it_has_the_kernels(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(directory: Path, size: int = 0) -> None:
        if size:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(scratch, "_try", full)
    with pytest.raises(WrongSetting, match=f"^EARSHOT_DATA: {data} cannot be written: No space left on device$"):
        scratch.prepare()
    (data / scratch.CACHE / "kernels" / "one.nbc").touch()
    scratch.prepare()


@pytest.mark.parametrize("flags", ["avx avx2", "avx"])
def test_image_for_newer_processors_compiles_for_an_older_one(
    flags: str, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    processors = tmp_path / "cpuinfo"
    processors.write_text(f"flags : {flags}\n")
    monkeypatch.setattr(scratch, "PROCESSORS", processors)
    monkeypatch.setenv(scratch.PROCESSOR, scratch.MODERN)
    scratch.prepare()
    assert (scratch.PROCESSOR in os.environ) == (scratch.NEEDED in flags.split())
