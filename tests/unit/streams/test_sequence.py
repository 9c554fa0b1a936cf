"""Lost files of a RocksDB leave a gap in the numbers of its changes; a kill leaves none."""

import os
import random
import shutil
from pathlib import Path

import pytest
from rocksdict import AccessType, Options, Rdict, WriteBatch

from streams.embedded.log_store import TOLERANT, options
from streams.sequence import BLOCK_BYTES, gap

CUTS = 60


def small() -> Options:
    """Return options with which a database soon has several write-ahead logs."""
    made = options(TOLERANT)
    made.set_write_buffer_size(64 * 1024)
    made.set_min_write_buffer_number_to_merge(4)
    made.set_max_write_buffer_number(6)
    made.set_disable_auto_compactions(True)  # Files must not vanish while they are copied.
    return made


def killed(directory: Path, chance: random.Random, opened: int = 0) -> Path:
    """Return a database with three write-ahead logs after a kill; it was killed and opened before, `opened` times."""
    for number in range(opened + 1):
        db = Rdict(str(directory / str(number)), small())
        while len(logs(directory / str(number))) < 3:
            batch = WriteBatch(raw_mode=True)
            for _ in range(chance.randint(1, 3)):
                size = chance.choice((10, 3000, chance.randint(1, BLOCK_BYTES), 2 * BLOCK_BYTES))
                batch.put(chance.randbytes(8), chance.randbytes(size))
            db.write(batch)
        shutil.copytree(directory / str(number), directory / str(number + 1))
        db.close()
    return directory / str(opened + 1)


def logs(path: Path) -> list[Path]:
    return sorted(file for file in path.glob("*.log") if file.stat().st_size)


@pytest.mark.parametrize("opened", [0, 1, 2])
def test_killed_database_has_no_gap(tmp_path: Path, opened: int) -> None:
    for seed in range(5):
        path = killed(tmp_path / str(seed), random.Random(seed), opened)
        assert gap(path, small) is None
        (path / "copy.log").write_bytes(logs(path)[-1].read_bytes())  # Not RocksDB's.
        assert gap(path, small) is None
        (path / "copy.log").unlink()
        # A write was interrupted.
        os.truncate(logs(path)[-1], logs(path)[-1].stat().st_size - 5)
        assert gap(path, small) is None


@pytest.mark.parametrize("index", [0, 1])
def test_lost_end_of_older_write_ahead_log_is_a_gap(tmp_path: Path, index: int) -> None:
    chance = random.Random(index)
    path = killed(tmp_path, chance)
    log = logs(path)[index]
    data = log.read_bytes()
    for size in (0, len(data) - 1, *(chance.randrange(len(data)) for _ in range(CUTS))):
        log.write_bytes(data[:size])
        assert gap(path, small) is not None, size
    log.unlink()
    assert gap(path, small) is not None
    log.write_bytes(data)
    assert gap(path, small) is None


def tables(path: Path) -> int | None:
    """Return how many tables are on the list of files; None if it cannot be read."""
    try:
        db = Rdict(str(path), small(), access_type=AccessType.read_only(False))
    except Exception:  # rocksdict's errors have no common base.
        return None
    count = len(db.live_files())
    db.close()
    return count


def test_list_without_its_last_tables_is_a_gap(tmp_path: Path) -> None:
    path = killed(tmp_path, random.Random(1), opened=2)
    (manifest,) = path.glob("MANIFEST-*")
    whole, gaps = tables(path), 0
    for size in range(manifest.stat().st_size, 0, -1):
        os.truncate(manifest, size)
        if (count := tables(path)) is not None:
            assert (gap(path, small) is None) == (count == whole), size
            gaps += count != whole
    assert gaps
