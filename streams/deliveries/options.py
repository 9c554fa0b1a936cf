"""Deployment options of deliveries."""

import ipaddress
from typing import Final

import msgspec

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

#: Seconds before each attempt, as Standard Webhooks recommends: 75.6 hours.
RETRIES: Final = "0,5,300,1800,7200,18000,36000,50400,72000,86400"
#: After so long an alarm is gone.
MOST_SECONDS: Final = 6 * 86_400
MOST_ATTEMPTS: Final = 20


class DeliveryOptions(msgspec.Struct, frozen=True):
    """The options that the service passes on."""

    #: Networks besides the public addresses that destinations may be in.
    networks: tuple[Network, ...] = ()
    #: Seconds before each attempt.
    retries: tuple[float, ...] = ()
    #: The name of this node, the same after each start: brokers know its connections by it.
    node: str = ""
    #: The version of the service, for whoever receives alarms.
    version: str = ""


def parse_networks(text: str) -> tuple[Network, ...]:
    """Parse `192.168.0.0/16,fd00::/8`; raise ValueError if it is something else."""
    try:
        return tuple(ipaddress.ip_network(one.strip()) for one in text.split(","))
    except ValueError as error:
        raise ValueError(f"must be networks or addresses, comma-separated: {error}") from None


def parse_retries(text: str) -> tuple[float, ...]:
    """Parse seconds, as in `RETRIES`; raise ValueError if they are too many, too long or no seconds."""
    wrong = f"must be at most {MOST_ATTEMPTS} pauses of 0 s or more, comma-separated, {MOST_SECONDS} s in all"
    try:
        retries = tuple(map(float, text.split(",")))
    except ValueError:
        raise ValueError(wrong) from None
    if not (len(retries) <= MOST_ATTEMPTS and min(retries) >= 0 and sum(retries) <= MOST_SECONDS):
        raise ValueError(wrong)
    return retries
