"""The sockets that clients connect to."""

import socket

import pytest

from infra.service import listener


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="the kernel has no such option")
def test_kernel_keeps_unread_data_of_closed_connections_for_a_bounded_time() -> None:
    """An answer that fits into the kernel's memory leaves the service at once, whether the client reads it or not."""
    sockets = listener.listen("127.0.0.1", 0)
    with socket.create_connection(sockets[0].getsockname()[:2]):
        served, _ = sockets[0].accept()
        with served:
            kept = served.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
    listener.close(sockets)
    assert kept == 1000 * listener.UNREAD_SECONDS
