"""What systemd is told: datagrams on a socket of ours."""

import asyncio
import os
import socket
from pathlib import Path

import pytest

from infra.service_manager import ServiceManager


@pytest.mark.parametrize("abstract", [False, True])
async def test_ready_and_signs_of_life_are_told(
    abstract: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = f"{tmp_path}/notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as systemd:
        systemd.bind("\0" + place if abstract else place)
        monkeypatch.setenv("NOTIFY_SOCKET", "@" + place if abstract else place)
        monkeypatch.setenv("WATCHDOG_USEC", "20000")
        keeping = asyncio.create_task(ServiceManager().keep())
        loop = asyncio.get_running_loop()
        told = [await loop.sock_recv(systemd, 100) for _ in range(4)]
        keeping.cancel()
    assert told == [b"READY=1", *[b"WATCHDOG=1"] * 3]
    assert not {"NOTIFY_SOCKET", "WATCHDOG_USEC"} & os.environ.keys(), "child processes do not speak for it"


@pytest.mark.parametrize(("address", "interval"), [(None, None), ("/nowhere", ""), ("@", "soon")])
async def test_manager_that_is_not_there_is_no_fault(
    address: str | None, interval: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in ("NOTIFY_SOCKET", address), ("WATCHDOG_USEC", interval):
        monkeypatch.delenv(name, raising=False)
        if value is not None:
            monkeypatch.setenv(name, value)
    await ServiceManager().keep()
