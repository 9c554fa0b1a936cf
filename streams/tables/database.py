"""The RocksDB databases of a node, one a partition, with bounds that fit many of them in one process."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

import rocksdict

from streams.disk import DiskDatabase
from topics.errors import ServiceError

WRITE_BUFFER: Final = 8 * 1024 * 1024
BLOCK_CACHE: Final = 32 * 1024 * 1024
OPEN_FILES: Final = 64


class Databases:
    """The directory of a node's tables."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory / "partitions"
        # One cache for all partitions: with one each, memory would grow with their number.
        self._cache = rocksdict.Cache(BLOCK_CACHE)
        # Tables of earlier versions; they come back from the changelog.
        for old in directory.glob("v*/tables"):
            shutil.rmtree(old, ignore_errors=True)

    def open(self, partition: int) -> DiskDatabase:
        """Open the database of a partition, made where there is none.

        Raises:
            ServiceError: it is open elsewhere, damaged, or the disk does not take it.
        """
        self._directory.mkdir(parents=True, exist_ok=True)
        try:
            return DiskDatabase(self._path(partition), self._options)
        except Exception as error:  # rocksdict's errors have no common base
            raise ServiceError(f"the table of partition {partition} cannot be opened: {error}") from error

    def _options(self) -> rocksdict.Options:
        options = rocksdict.Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_write_buffer_size(WRITE_BUFFER)
        options.set_max_write_buffer_number(2)
        options.set_max_open_files(OPEN_FILES)
        options.set_keep_log_file_num(2)
        options.set_max_total_wal_size(4 * WRITE_BUFFER)
        blocks = rocksdict.BlockBasedOptions()
        blocks.set_block_cache(self._cache)
        blocks.set_bloom_filter(10, False)
        options.set_block_based_table_factory(blocks)
        return options

    def wipe(self, partition: int) -> None:
        """Delete the database of a partition that is not open."""
        shutil.rmtree(self._path(partition), ignore_errors=True)

    def _path(self, partition: int) -> Path:
        return self._directory / f"{partition}.db"
