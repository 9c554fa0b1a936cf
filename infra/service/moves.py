"""Moves partitions to another number of lanes, while the service is stopped.

The new lanes are written whole beside the old ones. Then the file of the placement names them, at one moment, and the
old ones are removed. Whenever that is interrupted, the next start finds the one or the other, and removes the rest.
"""

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import structlog

from infra.disk import sync, sync_all
from infra.errors import variable
from infra.service import data_directory, lanes
from infra.service.data_directory import tables
from infra.service.lanes import Placement
from infra.service.lives import LIVES
from infra.settings import LANES, Settings
from infra.urls import Embedded
from streams.embedded import layout
from streams.embedded.log_store import MIB, Store
from streams.embedded.marks import FILE as MARKS
from streams.embedded.marks import Marks
from streams.tables.database import Databases
from topics.errors import ServiceError

log = structlog.get_logger("infra.service")

BATCH_BYTES: Final = 4 * MIB
#: Free bytes that a move leaves.
SPARE_BYTES: Final = 256 * MIB
#: What the only lane of a directory that never had several has beside what all share, and its log.
OWN: Final = ("tables", "uploads")
#: Files that RocksDB does not change.
_IMMUTABLE: Final = (".sst", ".blob")


def settle(settings: Settings, name: bytes | None) -> Placement:
    """Return the placement on as many lanes as the settings say; move the partitions if there were more or fewer.

    `name` is that of the log which the database belongs to, None if it does not know; all lanes have it. The data
    directory must be locked.

    Raises:
        WrongSetting: there are fewer partitions than lanes.
        ServiceError: the disk has no room for the copies, or a log cannot be read.
    """
    before, count = lanes.stored(settings), settings.lane_count
    if not isinstance(settings.log, Embedded):
        return before
    _clean(settings, before)
    if len(before.partitions) == count:
        return before
    after = Placement(before.generation + 1, lanes.balanced(before.partitions, count))
    sources, targets = ([settings.of_lane(lane) for lane in one.lanes()] for one in (before, after))
    try:
        _copy(sources, targets, before, after, name)
    except OSError as error:
        raise ServiceError(f"the lanes cannot be written: {error.strerror} ({error.filename})") from error
    lanes.store(settings, after)
    _clean(settings, after)
    return after


def _clean(settings: Settings, placement: Placement) -> None:
    """Remove lanes that the placement does not name: what is left of an interrupted move."""
    directory = data_directory.log(settings).parent
    for root in {directory, settings.data}:
        for left in root.glob(f"{LANES}*"):
            if left.name != f"{LANES}{placement.generation}":
                shutil.rmtree(left)
    if placement.generation:
        for left in (data_directory.log(settings), *(settings.data / name for name in OWN)):
            if left.exists():
                shutil.rmtree(left)


def _copy(
    sources: Sequence[Settings],
    targets: Sequence[Settings],
    before: Placement,
    after: Placement,
    name: bytes | None,
) -> None:
    places = [data_directory.log(one) for one in sources]
    size = sum(file.stat().st_size for place in places for file in place.rglob("*") if file.is_file())
    root = data_directory.log(sources[0]).parent
    if (free := shutil.disk_usage(root).free) < size + SPARE_BYTES:
        raise ServiceError(
            f"moving {len(sources)} lanes to {len(targets)} needs {(size + SPARE_BYTES) // MIB} MiB beside {root}, and "
            f"{free // MIB} are free: make room, or set {variable('lanes')}={len(sources)}"
        )
    change = max(Marks(tables(one) / MARKS).change for one in sources)
    home = {number: lane for lane, numbers in enumerate(before.partitions) for number in numbers}
    with ExitStack() as stack:
        stores: list[Store | None] = []
        for place in places:
            # A lane that never started has no log.
            opened = Store.open(place, whole=True) if place.exists() else None
            if opened is not None:
                stack.callback(opened.close)
            stores.append(opened)
        names = [one.name() for one in stores if one is not None]
        name = next(iter(names), name or os.urandom(16))
        for lane, (target, numbers) in enumerate(zip(targets, after.partitions, strict=True)):
            if size:
                log.info("lanes.moving", before=len(sources), after=len(targets), lane=lane, mb=size // MIB)
            directory = data_directory.log(target)
            for one in (directory.parent, tables(target)):
                one.mkdir(mode=0o700, parents=True)
            new = Store.open(directory)
            try:
                new.write_patiently({layout.NAME_KEY: name, layout.MARKER_KEY: layout.pack_marker(0, name)})
                for number in sorted(numbers):
                    if (old := stores[home[number]]) is not None:
                        _copy_partition(old, new, number)
                new.sync()
            finally:
                new.close()
            for number in numbers:
                old_table, new_table = (Databases(tables(one)).path(number) for one in (sources[home[number]], target))
                _link(old_table, new_table)
            marks = Marks(tables(target) / MARKS)
            marks.change = change
            marks.keep()
            marks.close()
            if lane < len(sources) and (lives := sources[lane].own / LIVES).exists():
                shutil.copyfile(lives, target.own / LIVES)
    for one in {directory for target in targets for directory in (data_directory.log(target).parent, target.own)}:
        sync_all(one)
        sync(one.parent)


def _copy_partition(old: Store, new: Store, number: int) -> None:
    """Copy the records of a partition with their offsets, and what the log notes about it."""
    rows: dict[bytes, bytes | None] = {}
    waiting = 0
    for name, (topic, partitions) in _topics(old).items():
        there = _topics(new)
        if name not in there:
            topic_id = 1 + max((one for one, _ in there.values()), default=0)
            new.write_patiently({layout.topic_key(name): layout.pack_topic(topic_id, partitions)})
        copied = _topics(new)[name][0]
        for of in (layout.earliest_key, layout.clean_key, layout.next_key):
            if (value := old.get(of(topic, number))) is not None:
                rows[of(copied, number)] = value
        bounds = (layout.record_key(topic, number, offset) for offset in (0, layout.MAX_OFFSET))
        for key, value in old.scan(*bounds):
            rows[layout.record_key(copied, number, layout.record_offset(key))] = value
            waiting += len(key) + len(value)
            if waiting > BATCH_BYTES:
                new.write_patiently(rows)
                rows, waiting = {}, 0
    new.write_patiently(rows)


def _topics(store: Store) -> dict[str, tuple[int, int]]:
    """Return id and number of partitions of each topic."""
    rows = store.scan(layout.TOPIC_PREFIX, layout.prefix_end(layout.TOPIC_PREFIX))
    return {key[1:].decode(): layout.unpack_topic(value) for key, value in rows}


def _link(table: Path, copy: Path) -> None:
    """Copy a closed table, if there is one; what RocksDB does not change is linked."""
    for file in _files(table):
        into = copy / file.relative_to(table)
        into.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if file.suffix in _IMMUTABLE:
            os.link(file, into)
        elif not file.name.startswith(("LOG", "LOCK")):
            shutil.copyfile(file, into)


def _files(directory: Path) -> Iterator[Path]:
    return (path for path in directory.rglob("*") if path.is_file())
