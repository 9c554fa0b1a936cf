"""The port is taken first: by one program, on an address of this machine."""

from __future__ import annotations

import socket

import pytest

from infra.errors import WrongSetting
from infra.service.listener import close, listen
from topics.errors import ServiceError


def test_a_free_port_is_taken() -> None:
    sockets = listen("localhost", 0)
    (port,) = {one.getsockname()[1] for one in sockets}
    socket.create_connection(("localhost", port)).close()
    close(sockets)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("localhost", port))


def test_a_port_that_is_taken() -> None:
    sockets = listen("127.0.0.1", 0)
    port = sockets[0].getsockname()[1]
    with pytest.raises(ServiceError, match=f"^EARSHOT_PORT: port {port} of 127.0.0.1 is taken by another program$"):
        listen("127.0.0.1", port)
    close(sockets)


def test_another_setting_is_named() -> None:
    with pytest.raises(WrongSetting, match=r"^EARSHOT_ADMIN_LISTEN: '192.0.2.1' is not an address of this machine"):
        listen("192.0.2.1", 0, "admin_listen")


@pytest.mark.parametrize(
    ("host", "why"),
    [
        ("no.such.host.invalid", "does not resolve"),
        ("999.1.1.1", "does not resolve"),
        ("a..b", "does not resolve"),
        # Reserved for documentation, so nobody's.
        ("192.0.2.1", "is not an address of this machine"),
    ],
)
def test_a_host_that_cannot_be_had(host: str, why: str) -> None:
    with pytest.raises(WrongSetting, match=f"^EARSHOT_HOST: '{host}' {why}"):
        listen(host, 0)
