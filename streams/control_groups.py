"""The control groups of this process, by which containers and service managers bound it."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

ROOT: Final = Path("/")


def control_groups(controller: str, root: Path = ROOT) -> Iterator[tuple[Path, bool]]:
    """Yield where a controller's limits on this process may be: its own groups, and those around them.

    True comes with a directory of version 2 of control groups, False with one of version 1. Not each one exists.
    """
    groups = root / "sys/fs/cgroup"
    with suppress(OSError):
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if not controllers:
                places = groups, groups / "unified"
            elif controller in controllers.split(","):
                places = groups / controllers, groups / controller
            else:
                continue
            for place in places:
                # A container sees its own group as the root, perhaps with the path that it has outside.
                group = place / path.lstrip("/")
                for directory in (group, *group.parents):
                    if directory.is_relative_to(place):
                        yield directory, not controllers
