"""What nodes learn from each other's liveness probes: which process answers, and whether its stand-bys are ready."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import httpx2
import structlog

from infra.errors import WrongSetting
from topics.errors import Unavailable
from topics.ports.health import PROCESS, STANDBYS

log = structlog.get_logger("earshot")

ANSWER_SECONDS: Final = 3.0
#: Seconds between two looks at stand-bys.
LOOK_SECONDS: Final = 0.5


async def process_at(url: str) -> str | None:
    """Return the id of the process that answers at a node's URL; None if it is no node, or one of another version.

    Raises:
        Unavailable: nothing answers.
    """
    return (await _headers(url)).get(PROCESS)


async def wait_for_standbys(urls: Sequence[str]) -> None:
    """Return once the stand-by tables of the nodes that answer at these URLs have what a takeover needs."""
    for url in urls:
        with suppress(Unavailable):
            while (await _headers(url)).get(STANDBYS) == "behind":  # noqa: ASYNC110 (in another process)
                await asyncio.sleep(LOOK_SECONDS)


async def _headers(url: str) -> httpx2.Headers:
    try:
        # Other nodes use no proxy either.
        async with httpx2.AsyncClient(timeout=ANSWER_SECONDS, trust_env=False) as client:
            return (await client.get(f"{url}/healthz")).headers
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
        raise Unavailable(str(error) or type(error).__name__) from error


async def check_address(url: str, process: str) -> None:
    """Check that this process, which serves already, is the one that answers at its URL; log it if nothing does.

    That may be right: some networks do not lead a machine to itself by the address that others use.

    Raises:
        WrongSetting: another process answers.
    """
    try:
        there = await process_at(url)
    except Unavailable as error:
        log.warning("advertise.unreachable", url=url, reason=str(error), note="other nodes may not reach it either")
    else:
        if there != process:
            raise WrongSetting("advertise", f"{url} reaches another process: give each node an address of its own")
