"""Client addresses: which count as one client, and which client is behind reverse proxies."""

from collections.abc import Iterable
from ipaddress import IPv6Address, ip_address
from typing import Final

#: Length of a customer's IPv6 prefix, in bits.
CUSTOMER_BITS: Final = 64
_HEADER: Final = b"x-forwarded-for"


def customer(address: str) -> str:
    """Return the unit that limits count: an IPv4 address, or the network of an IPv6 address."""
    if ":" not in address:
        return address
    whole = ip_address(address.partition("%")[0])
    assert isinstance(whole, IPv6Address)
    mapped = whole.ipv4_mapped
    return str(mapped) if mapped else hex(int(whole) >> (128 - CUSTOMER_BITS))


def client_address(peer: str, headers: Iterable[tuple[bytes, bytes]], proxies: int) -> str:
    """Return the address that the outermost of `proxies` trusted proxies saw, or the peer's if none is reported.

    Each proxy appends its caller's address to X-Forwarded-For. The client can forge everything further left.
    """
    said = b",".join(value for name, value in headers if name == _HEADER).split(b",")
    if not 0 < proxies <= len(said):
        return peer
    text = said[-proxies].strip().decode("latin-1")
    # Some proxies add a port: 192.0.2.1:4711, [2001:db8::1]:4711.
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        return str(ip_address(text))
    except ValueError:
        return peer
