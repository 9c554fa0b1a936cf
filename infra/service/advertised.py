"""The address at which other nodes reach this one: which process answers there."""

from typing import Final

import httpx2
import structlog

from app.probes import PROCESS
from infra.errors import WrongSetting
from topics.errors import Unavailable

log = structlog.get_logger("earshot")

ANSWER_SECONDS: Final = 3.0


async def process_at(url: str) -> str | None:
    """Return the id of the process that answers at a node's URL; None if it is no node, or one of another version.

    Raises:
        Unavailable: nothing answers.
    """
    try:
        # Other nodes use no proxy either.
        async with httpx2.AsyncClient(timeout=ANSWER_SECONDS, trust_env=False) as client:
            answer = await client.get(f"{url}/healthz")
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
        raise Unavailable(str(error) or type(error).__name__) from error
    return answer.headers.get(PROCESS)


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
