"""Tells systemd that the service is ready and that its loop turns: sd_notify(3), for units with Type=notify."""

import asyncio
import os
import socket
from contextlib import suppress


class ServiceManager:
    """The service manager that started this process, if it wants to be told. Loop only."""

    def __init__(self) -> None:
        # Removed, because child processes must not speak for the service.
        self._address = os.environ.pop("NOTIFY_SOCKET", "")
        interval = os.environ.pop("WATCHDOG_USEC", "")
        #: Seconds between two signs of life, half of what it waits for; None if it does not watch.
        self._seconds = int(interval) / 2_000_000 if interval.isdecimal() else None

    async def keep(self) -> None:
        """Tell that the service is ready, and show signs of life until cancelled."""
        self._tell("READY=1")
        while self._seconds:
            self._tell("WATCHDOG=1")
            await asyncio.sleep(self._seconds)

    def _tell(self, state: str) -> None:
        if not self._address:
            return
        # An address with @ is in the abstract name space.
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as sender:
            sender.sendto(state.encode(), address)
