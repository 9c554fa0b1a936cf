"""The source address of a request: read from trusted proxies only."""

import pytest

from app.http.addresses import client_address, customer


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
