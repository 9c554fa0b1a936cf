"""Hosts are resolved once, and only addresses that were checked are connected to."""

import asyncio
import ipaddress
import socket

import pytest

from streams.deliveries import addresses
from streams.deliveries.addresses import Resolver, is_public
from streams.deliveries.options import parse_networks
from tests.waiting import turn

REFUSED = (
    # Private, shared, loopback, link-local with the metadata of clouds, and their other addresses.
    *("10.1.2.3", "172.16.0.1", "192.168.1.1", "100.64.0.1", "100.100.100.200", "127.0.0.1", "169.254.169.254"),
    *("168.63.129.16", "192.0.0.192", "0.0.0.0", "255.255.255.255", "240.0.0.1", "224.0.0.1", "198.18.0.1"),
    *("203.0.113.1", "192.88.99.1"),
    *("::", "::1", "fe80::1", "fec0::1", "fc00::1", "fd00:ec2::254", "ff02::1", "2001:db8::1", "3fff::1", "5f00::1"),
    # IPv4 in disguise: mapped, compatible, translated, 6to4, Teredo.
    *("::ffff:10.0.0.1", "::ffff:8.8.8.8", "::10.0.0.1", "64:ff9b::a00:1", "64:ff9b:1::a00:1", "2002:a00:1::1"),
    "2001:0:a00:1::1",
)


@pytest.mark.parametrize("address", REFUSED)
def test_address_is_refused(address: str) -> None:
    assert not is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize("address", ["8.8.8.8", "1.1.1.1", "2606:4700:4700::1111", "2a00:1450:4001:80b::200e"])
def test_public_address_is_allowed(address: str) -> None:
    assert is_public(ipaddress.ip_address(address))


class Names:
    """Answers look-ups of names from a table, one answer after the other."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **table: list[str]) -> None:
        self.table = table
        self.asked: list[str] = []
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        monkeypatch.setattr(addresses, "look_up", self.look_up)

    async def look_up(self, host: str) -> list[str]:
        self.asked.append(host)
        await self.may_answer.wait()
        if (answers := self.table.get(host)) is None:
            raise socket.gaierror(-2, "Name or service not known")
        return answers


async def test_only_usable_addresses_are_tried_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    Names(monkeypatch, both=["10.0.0.1", "8.8.8.8", "fe80::1", "1.1.1.1"])
    tried = []

    async def connect(address: str) -> str:
        tried.append(address)
        if address == "8.8.8.8":
            raise ConnectionRefusedError
        return address

    assert await Resolver().connect("both", 443, connect) == "1.1.1.1"
    assert tried == ["8.8.8.8", "1.1.1.1"]


async def test_private_host_is_refused_unless_its_network_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    Names(monkeypatch, home=["192.168.1.5"], mapped=["::ffff:192.168.1.5"])
    with pytest.raises(OSError, match=r"^home has no public address, and"):
        await Resolver().addresses("home")
    resolver = Resolver(parse_networks("192.168.0.0/16, fd00::/8"))
    assert await resolver.addresses("home") == ["192.168.1.5"]
    with pytest.raises(OSError, match="public addresses only"):
        await resolver.addresses("mapped")


@pytest.mark.parametrize(
    "host", ["2130706433", "0x7f000001", "0177.0.0.1", "127.1", "localhost", "::1", "::ffff:7f00:1"]
)
async def test_other_spellings_of_this_machine_are_refused(host: str) -> None:
    with pytest.raises(OSError, match=r"public addresses only|there is no host"):
        await Resolver().addresses(host)


async def test_name_that_changes_afterwards_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The address that was checked is the one that is connected to, so a second answer for the name is never asked."""
    names = Names(monkeypatch, rebinding=["8.8.8.8"])

    async def connect(address: str) -> str:
        names.table["rebinding"] = ["127.0.0.1"]
        return address

    assert await Resolver().connect("rebinding", 80, connect) == "8.8.8.8"
    assert names.asked == ["rebinding"]


async def test_slow_names_hold_a_bounded_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(addresses, "LOOKUPS", 2)
    names = Names(monkeypatch, a=["8.8.8.8"], b=["8.8.8.8"], c=["8.8.8.8"])
    names.may_answer.clear()
    resolver = Resolver()
    waiting = [asyncio.create_task(resolver.addresses(host)) for host in "aaabbc"]
    await turn()
    assert names.asked == ["a", "b"]
    waiting[0].cancel()  # Whoever waits may leave; the others get the answer.
    names.may_answer.set()
    assert await asyncio.gather(*waiting[1:]) == [["8.8.8.8"]] * 5
    assert names.asked == ["a", "b", "c"]


async def test_name_is_looked_up_by_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(await addresses.look_up("localhost")) <= {"127.0.0.1", "::1"}
    link_local = [(socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("fe80::1%eth0", 0, 0, 2))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *given, **more: link_local)
    assert await addresses.look_up("router") == ["fe80::1"]


async def test_unknown_host_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    Names(monkeypatch)
    with pytest.raises(OSError, match=r"^there is no host nowhere$"):
        await Resolver().addresses("nowhere")
