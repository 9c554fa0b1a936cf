"""What a destination may be, before anything is sent to it."""

import ipaddress
import re
from collections.abc import Callable, Mapping
from typing import Final
from urllib.parse import urlsplit

from streams.deliveries.addresses import Resolver
from streams.deliveries.ntfy import PRIORITIES
from topics.errors import BadRequest
from topics.ports.alarms import Destination

_NTFY_TOPIC: Final = re.compile(r".*/[A-Za-z0-9_-]{1,64}")


def _is_page(text: str) -> bool:
    return text.isprintable() and " " not in text and text.startswith(("https://", "http://"))


def _is_topic(text: str) -> bool:
    return bool(text.strip("/")) and text.isprintable() and not set(text) & set("#+")


#: The options of each kind, with what their values must be.
OPTIONS: Final[Mapping[str, Mapping[str, tuple[Callable[[str], bool], str]]]] = {
    "webhook": {},
    "ntfy": {
        "priority": (PRIORITIES.__contains__, f"one of {', '.join(PRIORITIES)}"),
        "click": (_is_page, "an http:// or https:// URL"),
    },
    "mqtt": {
        "base": (_is_topic, "the beginning of a topic, without # and +"),
        "discovery": (_is_topic, "the beginning of a topic, without # and +"),
    },
}


def check(destination: Destination, resolver: Resolver) -> None:
    """Check the options and the URL of a destination. A name may become private later: each delivery looks again.

    Raises:
        BadRequest: an option is not one of the kind, ntfy cannot have the topic, or a private address is refused.
    """
    known = OPTIONS[destination.kind]
    for name, value in destination.options.items():
        if name not in known:
            takes = " and ".join(known) or "none"
            raise BadRequest(f"options: {name[:60]!r} is unknown; {destination.kind} takes {takes}")
        is_good, form = known[name]
        if not is_good(value):
            raise BadRequest(f"options: {name} must be {form}")
    url = urlsplit(destination.url)
    if destination.kind == "ntfy" and not _NTFY_TOPIC.fullmatch(url.path.rstrip("/")):
        raise BadRequest(
            "url: the path must end with the topic, as in https://ntfy.sh/TOPIC: up to 64 of a-z, A-Z, 0-9, _ and -"
        )
    try:
        address = ipaddress.ip_address(url.hostname or "")
    except ValueError:
        return
    if not resolver.is_usable(address):
        raise BadRequest(
            f"url: {address} is not a public address, and deliveries go to public addresses only, unless the operator "
            "allows others (EARSHOT_DELIVERY_NETWORKS)"
        )
