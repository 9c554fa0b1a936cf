"""Request headers: a single byte range, and the source address, read from trusted proxies only."""

import pytest

from app.http.addresses import client_address, customer
from app.http.ranges import RangeNotSatisfiable, byte_range


@pytest.mark.parametrize(
    ("header", "found"),
    [
        (b"bytes=0-0", (0, 1)),
        (b"bytes=0-", (0, 100)),
        (b"bytes=10-19", (10, 20)),
        (b"bytes=99-99", (99, 100)),
        (b"bytes=90-4000", (90, 100)),
        (b"bytes=-1", (99, 100)),
        (b"bytes=-4000", (0, 100)),
        (b"bytes=0-9999999999999999999", (0, 100)),
    ],
)
def test_valid_ranges(header: bytes, found: tuple[int, int]) -> None:
    assert byte_range(header, 100) == found


@pytest.mark.parametrize(
    "header",
    [
        *(b"", b"bytes=", b"bytes=-", b"bytes=5-4", b"bytes=0-1,3-4", b"bytes=0x10-", b"bytes=+1-2", b"bytes=0-1\n"),
        b"bytes=" + b",".join(b"0-" for _ in range(1000)),
        b"bytes=" + b"9" * 5000 + b"-",
        b"items=0-1",
        "bytes=٣-٤".encode(),
    ],
)
def test_invalid_ranges_select_whole_body(header: bytes) -> None:
    assert byte_range(header, 100) is None


@pytest.mark.parametrize("header", [b"bytes=100-", b"bytes=100-200", b"bytes=-0", b"bytes=9999999999999999999-"])
def test_range_after_end_is_not_satisfiable(header: bytes) -> None:
    with pytest.raises(RangeNotSatisfiable) as error:
        byte_range(header, 100)
    assert error.value.headers == ((b"content-range", b"bytes */100"),)


@pytest.mark.parametrize(
    ("said", "proxies", "expected"),
    [
        pytest.param(["192.0.2.1"], 0, "peer", id="nobody is trusted"),
        pytest.param([], 1, "peer", id="the proxy tells nothing"),
        pytest.param(["192.0.2.1"], 2, "peer", id="one proxy was passed by"),
        pytest.param(["8.8.8.8, 192.0.2.1"], 1, "192.0.2.1", id="the left one is the client's claim"),
        pytest.param(["8.8.8.8", "192.0.2.1,10.0.0.1"], 2, "192.0.2.1", id="two proxies, two headers"),
        pytest.param(["192.0.2.1:4711"], 1, "192.0.2.1", id="with a port"),
        pytest.param(["[2001:db8::1]:4711"], 1, "2001:db8::1", id="IPv6 with a port"),
        pytest.param(["2001:db8::1"], 1, "2001:db8::1", id="IPv6"),
        pytest.param(["unknown"], 1, "peer", id="no address"),
    ],
)
def test_client_address_comes_from_outermost_trusted_proxy(said: list[str], proxies: int, expected: str) -> None:
    headers = [(b"host", b"x"), *((b"x-forwarded-for", value.encode()) for value in said)]
    assert client_address("peer", headers, proxies) == expected


def test_ipv6_network_is_one_customer() -> None:
    assert customer("2001:db8::1") == customer("2001:db8::ffff") != customer("2001:db8:0:1::1")
    assert customer("::ffff:192.0.2.1") == customer("192.0.2.1")
