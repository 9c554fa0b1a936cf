"""`python -m infra.cli.lane [DESCRIPTOR]`: a lane, started by its supervisor; or the version of what lanes agree on."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from infra.db.bootstrap import Bootstrap
    from infra.service.service import EarshotService

LONGEST_ORDERS: Final = 1 << 20


def main(descriptor: int) -> int:
    """Serve as the lane that the orders at a descriptor name; return the exit status."""
    control = socket.socket(fileno=descriptor)
    orders_line = control.makefile("rb").readline(LONGEST_ORDERS)
    from infra import settings
    from infra.cli.serve import started

    loaded = settings.load()
    with started() as zygote:
        from infra.service.lanes import Orders
        from infra.service.service import EarshotService, on_stop, run_process
        from infra.service.supervisor import READY

    orders = msgspec.json.decode(orders_line, type=Orders)
    own = loaded.of_lane(orders.lane)

    async def serve() -> int:
        service = EarshotService(own, zygote, orders)
        on_stop(service.stopping.set)
        # It never sends anything more: readable means that the supervisor has ended.
        asyncio.get_running_loop().add_reader(control, os._exit, 1)

        async def welcome(service: EarshotService, demo: Bootstrap) -> None:
            control.send(READY)

        return await service.run(welcome)

    return run_process(own, serve)


if __name__ == "__main__":
    from infra.cli import main as reporting
    from infra.service.lanes import version

    reporting(lambda: sys.exit(main(int(sys.argv[1]))) if sys.argv[1:] else print(version()))
