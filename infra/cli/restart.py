"""`earshot restart`: restart the lanes of this machine, one after another."""

from __future__ import annotations

import os
import signal

import typer


def restart() -> None:
    """Restart the lanes of the service on this machine, one after another, with the code that is installed now.

    Each lane ends its connections, which clients open again on another one, and serves before the next one stops. The
    service log says when all have done so. A service with one lane must be stopped and started instead.
    """
    from infra.service import data_directory
    from infra.settings import load

    holder = data_directory.holder(load())
    os.kill(holder, signal.SIGUSR2)
    typer.echo(f"Process {holder} restarts its lanes; the service log says `service.restarted` at the end.")
