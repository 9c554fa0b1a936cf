"""What nodes learn from each other's liveness probes: which process answers, and whether its stand-bys are ready."""

import asyncio
import ssl
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


class Untrusted(Unavailable):
    """A certificate has expired, names another host, or is of an authority that is not trusted."""


async def process_at(url: str, trust: ssl.SSLContext | None = None) -> str | None:
    """Return the id of the process that answers at a node's URL; None if it is no node, or one of another version.

    Raises:
        Untrusted: the certificate there is not one that nodes trust.
        Unavailable: nothing answers.
    """
    return (await _headers(url, trust)).get(PROCESS)


async def wait_for_standbys(urls: Sequence[str], trust: ssl.SSLContext | None = None) -> None:
    """Return once the stand-by tables of the nodes that answer at these URLs have what a takeover needs."""
    for url in urls:
        with suppress(Unavailable):
            while (await _headers(url, trust)).get(STANDBYS) == "behind":  # noqa: ASYNC110 (in another process)
                await asyncio.sleep(LOOK_SECONDS)


async def _headers(url: str, trust: ssl.SSLContext | None) -> httpx2.Headers:
    # Loading certificates is slow, and unnecessary without https.
    verify = (trust or ssl.create_default_context()) if url.startswith("https:") else False
    try:
        # Other nodes use no proxy either.
        async with httpx2.AsyncClient(timeout=ANSWER_SECONDS, trust_env=False, verify=verify) as client:
            return (await client.get(f"{url}/healthz")).headers
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
        cause: BaseException | None = error
        while cause is not None:
            if isinstance(cause, ssl.SSLCertVerificationError):
                raise Untrusted(f"the certificate at {url} is not trusted: {cause.verify_message}") from error
            cause = cause.__cause__ or cause.__context__
        raise Unavailable(str(error) or type(error).__name__) from error


async def check_address(url: str, process: str, trust: ssl.SSLContext | None = None) -> None:
    """Check that this process, which serves already, is the one that answers at its URL; log it if nothing does.

    That may be right: some networks do not lead a machine to itself by the address that others use.

    Raises:
        WrongSetting: another process answers, or its certificate is not one that nodes trust.
    """
    try:
        there = await process_at(url, trust)
    except Untrusted as error:
        raise WrongSetting("node_certificate", str(error)) from error
    except Unavailable as error:
        log.warning("advertise.unreachable", url=url, reason=str(error), note="other nodes may not reach it either")
    else:
        if there != process:
            raise WrongSetting("advertise", f"{url} reaches another process: give each node an address of its own")
