"""The listening sockets of the HTTP server, opened before anything else starts."""

import contextlib
import errno
import os
import resource
import socket
from typing import Final

from infra.errors import WrongSetting, variable
from topics.errors import ServiceError

#: This machine lacks the family or address; a host with several addresses may do without it.
_MISSING: Final = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
BACKLOG: Final = 2048
#: Seconds for which the kernel keeps what a client does not read, also after the service has closed the connection.
UNREAD_SECONDS: Final = 60


def descriptors() -> int:
    """Raise this process's limit of open files as far as allowed, and return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        with contextlib.suppress(ValueError, OSError):  # macOS reports a hard limit that it does not allow.
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            return hard
    return soft


def listen(host: str, port: int, setting: str | None = None, shared: bool = False) -> list[socket.socket]:
    """Return sockets that listen on every address of a host, all on one port; port 0 takes a free one.

    A `shared` port is one that other processes of this user listen on too: the kernel spreads connections among them
    (SO_REUSEPORT). Errors name the settings of host and port, or `setting` if it stands for both.

    Raises:
        WrongSetting: the host does not resolve or is not this machine, or this user may not use the port.
        ServiceError: another program uses the port.
    """
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise WrongSetting(
            setting or "host", f"{host!r} does not resolve: {getattr(error, 'strerror', error)}"
        ) from error
    sockets: list[socket.socket] = []
    try:
        for family, *_, address in dict.fromkeys(addresses):
            if one := _listener(family, (address[0], port, *address[2:]), shared):
                sockets.append(one)
                port = one.getsockname()[1]
    except OSError as error:
        close(sockets)
        if error.errno == errno.EADDRINUSE:
            raise ServiceError(
                f"{variable(setting or 'port')}: port {port} of {host} is taken by another program"
            ) from error
        fault = f"port {port} of {host} cannot be used: {os.strerror(error.errno or 0)}"
        if error.errno == errno.EACCES:
            fault += "; give one above 1023, or this user the capability CAP_NET_BIND_SERVICE"
        raise WrongSetting(setting or "port", fault) from error
    if not sockets:
        raise WrongSetting(setting or "host", f"{host!r} is not an address of this machine")
    return sockets


def close(sockets: list[socket.socket]) -> None:
    """Close the sockets; allowed twice."""
    for one in sockets:
        one.close()


def hold(sockets: list[socket.socket]) -> list[socket.socket]:
    """Return sockets that keep the addresses of `sockets` for shared ones of this user, and close those.

    They are bound but do not listen, so no connection goes to them.

    Raises:
        WrongSetting: this system does not let lanes share a port.
    """
    held: list[socket.socket] = []
    try:
        for one in sockets:
            address = one.getsockname()
            one.close()
            again = socket.socket(one.family, one.type)
            held.append(again)
            again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            if one.family == socket.AF_INET6:
                again.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            again.bind(address)
    except OSError as error:
        close([*held, *sockets])
        fault = f"several cannot share the port (SO_REUSEPORT: {os.strerror(error.errno or 0)}); 1 needs no sharing"
        raise WrongSetting("lanes", fault) from error
    return held


def _listener(family: int, address: tuple[str | int, ...], shared: bool) -> socket.socket | None:
    try:
        one = socket.create_server(address, family=family, backlog=BACKLOG, reuse_port=shared)
    except OSError as error:
        if error.errno in _MISSING:
            return None
        raise
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux; the connections inherit it.
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * UNREAD_SECONDS)
    return one
