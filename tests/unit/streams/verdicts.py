"""Futures of verdicts."""

import asyncio
from functools import partial

from streams.folding.awaited_verdicts import VerdictCall, Verdicts, settle
from topics.folding import Verdict


def expect(verdicts: Verdicts, command: str) -> asyncio.Future[Verdict]:
    """Return a future that the command's verdict resolves."""
    future: asyncio.Future[Verdict] = asyncio.get_running_loop().create_future()
    verdicts.call(command, partial(settle, future))
    return future


def awaited(future: asyncio.Future[Verdict]) -> VerdictCall:
    return VerdictCall(partial(settle, future))
