"""Moves partitions between the logs of lanes, while the service is stopped: the number of lanes has changed."""

from infra.service import lanes
from infra.service.lanes import Placement
from infra.settings import Settings
from infra.urls import Embedded
from topics.errors import ServiceError


def settle(settings: Settings) -> Placement:
    """Return the placement on as many lanes as the settings say; move partitions if there were more or fewer.

    Raises:
        EarshotError: there are fewer partitions than lanes, or the disk has no room for the copies.
    """
    broker = settings.log
    if not isinstance(broker, Embedded):
        return []
    before, is_new = lanes.stored(settings), not (broker.directory / "log").exists()
    after = lanes.balanced(before, settings.lane_count)
    if len(before) != len(after):
        if not is_new:
            raise ServiceError(f"this directory is of {len(before)} lanes")
        lanes.store(settings, after)
    return after
