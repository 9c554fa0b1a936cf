"""Moves partitions to another number of lanes, while the service is stopped.

The new lanes are written whole beside the old ones. Then the file of the placement names them, at one moment, and the
old ones are removed. Whenever that is interrupted, the next start finds the one or the other, and removes the rest.
"""

import os
import shutil
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Final

import structlog

from infra.disk import sync, sync_all
from infra.errors import variable
from infra.service import data_directory, lanes
from infra.service.data_directory import tables
from infra.service.lanes import Placement
from infra.service.lives import LIVES
from infra.settings import LANES, Settings
from streams.embedded.log_store import MIB, Store
from streams.embedded.marks import FILE as MARKS
from streams.embedded.marks import Marks
from streams.embedded.salvage import NewLog, linked_copy
from streams.tables.database import Databases
from topics.catalog import TopicPartition
from topics.errors import ServiceError

log = structlog.get_logger("infra.service")

#: Free bytes that a move leaves.
SPARE_BYTES: Final = 256 * MIB
#: What the only lane of a directory that never had several has beside what all share, and its log.
OWN: Final = ("tables", "uploads")


def settle(settings: Settings, name: bytes | None) -> Placement:
    """Return the placement on as many lanes as the settings say; move the partitions if there were more or fewer.

    `name` is that of the log which the database belongs to, None if it does not know; all lanes have it. The data
    directory must be locked.

    Raises:
        WrongSetting: there are fewer partitions than lanes.
        ServiceError: the disk has no room for the copies, or a log cannot be read.
    """
    before, count, file = lanes.stored(settings), settings.lane_count, settings.placement_file
    if file is None:
        _remove_unused(settings)
        return before
    _clean(settings, before)
    if len(before.partitions) == count:
        if not file.exists():
            # Later starts have as many partitions, whatever the machine is.
            lanes.store(settings, before)
        return before
    after = Placement(before.generation + 1, lanes.balanced(before.partitions, count))
    # A start stores the placement before it names the log.
    begun = name is not None and not file.exists()
    sources, targets = ([settings.of_lane(lane) for lane in one.lanes()] for one in (before, after))
    try:
        lanes.store(settings, before)
        _copy(sources, targets, before, after, name, begun)
    except OSError as error:
        raise ServiceError(f"the lanes cannot be written: {error.strerror} ({error.filename})") from error
    lanes.store(settings, after)
    _clean(settings, after)
    return after


def _remove_unused(settings: Settings) -> None:
    """Remove what lanes on Kafka had that run here no more: nothing would erase deleted data from it."""
    used = {lane.own for lane in lanes.lanes_of(settings)}
    left = [one for one in settings.data.glob(f"{LANES}*/*") if one not in used]
    if settings.data not in used:
        # The supervisor holds the lock.
        left += [one for one in tables(settings).iterdir() if one.name != "lock"] + [settings.data / "uploads"]
    for one in left:
        if one.is_dir():
            shutil.rmtree(one)
        else:
            one.unlink(missing_ok=True)


def _clean(settings: Settings, placement: Placement) -> None:
    """Remove lanes that the placement does not name: what is left of an interrupted move."""
    directory, named = data_directory.log(settings).parent, f"{LANES}{placement.generation}"
    roots = {directory, settings.data}
    if placement.generation and not all((root / named).exists() for root in roots):
        raise ServiceError(f"{settings.placement_file} names the lanes in {named}, which is missing: restore a backup")
    for root in roots:
        for left in root.glob(f"{LANES}*"):
            if left.name != named:
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
    begun: bool,
) -> None:
    places = [data_directory.log(one) for one in sources]
    size = sum(file.stat().st_size for place in places for file in place.rglob("*") if file.is_file())
    root = data_directory.log(sources[0]).parent
    if (free := shutil.disk_usage(root).free) < size + SPARE_BYTES:
        raise ServiceError(
            f"moving {len(sources)} lanes to {len(targets)} needs {(size + SPARE_BYTES) // MIB} MiB beside {root}, and "
            f"{free // MIB} are free: make room, or set {variable('lanes')}={len(sources)}"
        )
    before_marks = [Marks(tables(one) / MARKS) for one in sources]
    home = {number: lane for lane, numbers in enumerate(before.partitions) for number in numbers}
    with ExitStack() as stack:
        stores: list[Store | None] = []
        for place, marks in zip(places, before_marks, strict=True):
            # A lane that never started has no log.
            there = begun or place.exists() or marks.group
            opened = Store.open(place, marks.group, name, whole=True) if there else None
            if opened is not None:
                stack.callback(opened.close)
                name = opened.name()
            stores.append(opened)
        topics = [{} if one is None else one.topics() for one in stores]
        counts = {topic: partitions for known in topics for topic, (_, partitions) in known.items()}
        name = name or os.urandom(16)
        for lane, (target, numbers) in enumerate(zip(targets, after.partitions, strict=True)):
            if size:
                log.info("lanes.moving", before=len(sources), after=len(targets), lane=lane, mb=size // MIB)
            directory = data_directory.log(target)
            for one in (directory.parent, tables(target)):
                one.mkdir(mode=0o700, parents=True)
            new = NewLog(directory, name, 0)
            try:
                for topic, partitions in counts.items():
                    new.topic(topic, partitions)
                for number in sorted(numbers):
                    if (old := stores[home[number]]) is not None:
                        for topic, (topic_id, _) in topics[home[number]].items():
                            new.copy(TopicPartition(topic, number), old, topic_id)
            finally:
                new.close()
            for number in numbers:
                old_table, new_table = (Databases(tables(one)).path(number) for one in (sources[home[number]], target))
                if old_table.exists():
                    linked_copy(old_table, new_table)
            marks = Marks(tables(target) / MARKS)
            marks.change = max(one.change for one in before_marks)
            marks.keep()
            marks.close()
            if lane < len(sources) and (lives := sources[lane].own / LIVES).exists():
                shutil.copyfile(lives, target.own / LIVES)
    for one in {directory for target in targets for directory in (data_directory.log(target).parent, target.own)}:
        sync_all(one)
        sync(one.parent)
