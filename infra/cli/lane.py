"""`python -m infra.cli.lane DESCRIPTOR`: the process from which a supervisor has lanes forked, and then each lane."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from infra.db.bootstrap import Bootstrap
    from infra.service.service import EarshotService


def main(descriptor: int) -> int:
    """Have lanes forked, by the socket of the supervisor; in each of them, serve and return the exit status."""
    from infra.cli.serve import importing

    with importing():
        from infra import settings
        from infra.service.lane_template import READY, wait_for_orders
        from infra.service.process import on_stop, run_process
        from infra.service.service import EarshotService
        from streams.memory import trim_heap
        from streams.processes.zygote_process import Zygote
        from streams.workers import COMMAND

        trim_heap()
    orders, supervisor, zygote = wait_for_orders(socket.socket(fileno=descriptor))
    own = settings.load().of_lane(orders.lane)

    async def serve() -> int:
        service = EarshotService(own, Zygote(COMMAND, zygote), orders)
        on_stop(service.stopping.set)

        def hear() -> None:
            """Have other lanes that died removed from the group of nodes; end with the supervisor."""
            if not (told := supervisor.recv(1 << 16)):
                os._exit(1)
            for url, process in map(str.split, told.decode().splitlines()):
                if service.neighbours is not None:
                    service.neighbours.note_death(url, int(process))

        asyncio.get_running_loop().add_reader(supervisor, hear)

        async def welcome(service: EarshotService, demo: Bootstrap) -> None:
            supervisor.send(READY)

        return await service.run(welcome)

    return run_process(own, serve)


if __name__ == "__main__":
    from infra.cli import main as reporting

    reporting(lambda: sys.exit(main(int(sys.argv[1]))))
