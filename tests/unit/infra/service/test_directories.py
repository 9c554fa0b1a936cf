"""Directories that settings name: made or refused, with the name of the setting."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from infra import urls
from infra.errors import WrongSetting
from infra.service.directories import narrow, prepare
from infra.settings import Settings
from topics.errors import ServiceError


def test_those_of_the_data_are_made(tmp_path: Path) -> None:
    data = tmp_path / "a" / "b"
    prepare(Settings(data=data, broker=f"embedded://{tmp_path}/log"))
    assert data.is_dir()
    assert (tmp_path / "log").is_dir()


def test_they_are_for_their_owner_only(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        prepare(Settings(data=tmp_path / "data", broker=f"embedded://{tmp_path}/log"))
    finally:
        os.umask(before)
    assert {mode(tmp_path / name) for name in ("data", "log")} == {0o700}


def test_what_was_left_open_is_narrowed_and_nothing_else_is(tmp_path: Path) -> None:
    data, elsewhere = tmp_path / "data", tmp_path / "elsewhere"
    ours = [data / "tables", data / "uploads", elsewhere / "log", tmp_path / "e.db", tmp_path / "e.db-wal"]
    theirs = [data, elsewhere, data / "notes", tmp_path / "other.db", tmp_path / "target"]
    for path in [*ours, *theirs]:
        path.parent.mkdir(exist_ok=True)
        path.touch() if ".db" in path.name else path.mkdir(exist_ok=True)
        path.chmod(0o755)
    (data / "engines").symlink_to(tmp_path / "target")
    database = urls.database_url(f"sqlite:///{tmp_path}/e.db")
    for _ in range(2):
        narrow(Settings(data=data, broker=f"embedded://{elsewhere}", database_url=database))
    assert {mode(path) for path in ours} == {0o700}
    assert {mode(path) for path in theirs} == {0o755}


def mode(path: Path) -> int:
    """Return the rights on a path."""
    return path.stat().st_mode & 0o777


def test_those_of_voices_and_of_the_database_are_not(tmp_path: Path) -> None:
    database = urls.database_url(f"sqlite:///{tmp_path}/wrong/earshot.db")
    with pytest.raises(WrongSetting, match=r"^EARSHOT_DATABASE_URL: .*/wrong is not a directory$"):
        prepare(Settings(data=tmp_path / "data", database_url=database))
    prepare(Settings(data=tmp_path / "data", voices_url=f"file://{tmp_path}/voices/here"))
    assert {path.name for path in tmp_path.iterdir()} == {"data"}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("data", "/proc/earshot"),
        ("data", "/proc"),
        ("data", "{file}"),
        ("data", "{file}/below"),
        ("broker", "embedded://{file}"),
        ("broker", "embedded:///proc/earshot"),
        ("database_url", "sqlite+aiosqlite:////proc/earshot.db"),
        ("database_url", "sqlite+aiosqlite:///{file}/earshot.db"),
        ("voices_url", "{file}"),
        ("voices_url", "/proc/voices"),
    ],
)
def test_what_cannot_be_written_is_named(tmp_path: Path, field: str, value: str) -> None:
    file = tmp_path / "file"
    file.touch()
    settings = Settings.model_validate({"data": tmp_path / "data", field: value.format(file=file)})
    with pytest.raises(WrongSetting, match=rf"^EARSHOT_{field.upper()}: (/proc|{file}).* (is not|cannot be) "):
        prepare(settings)


@pytest.mark.parametrize("name", ["log/log/000004.log", "tables/partitions/0.db", "models/current", "earshot.db-wal"])
def test_a_file_of_somebody_else_is_named(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def access(path: Path, rights: int) -> bool:
        return path != file and plain(path, rights)

    plain, file = os.access, tmp_path / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch()
    prepare(Settings(data=tmp_path))
    monkeypatch.setattr(os, "access", access)
    with pytest.raises(ServiceError, match=f"^{file} is not for this user: "):
        prepare(Settings(data=tmp_path))


def test_a_file_in_place_of_a_directory_is_named(tmp_path: Path) -> None:
    (tmp_path / "uploads").touch()
    with pytest.raises(ServiceError, match=f"^{tmp_path}/uploads is not a directory"):
        prepare(Settings(data=tmp_path))
