"""Internals of uvicorn, httptools and websockets that connections and sockets use.

The bounds on untrusted input rest on these names. A release without one of them would silently switch a bound off, so
the versions are pinned, and the service does not start if a name is missing.
"""

from collections.abc import Collection, Mapping
from functools import partial
from inspect import isfunction
from types import SimpleNamespace
from typing import Final

import httptools
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import Server
from websockets.protocol import Protocol as FrameProtocol
from websockets.streams import StreamReader

from topics.errors import ServiceError

#: The parser calls these for a request with a body.
CALLBACKS: Final = (
    "on_message_begin", "on_url", "on_header", "on_headers_complete", "on_body", "on_message_complete",
)  # fmt: skip
#: Methods that are overridden or called.
METHODS: Final[Mapping[type, Collection[str]]] = {
    HttpToolsProtocol: (
        *CALLBACKS, "connection_made", "connection_lost", "data_received", "eof_received", "on_response_complete",
        "shutdown", "_start_asgi_task", "_unset_keepalive_if_required",
    ),
    FlowControl: ("pause_reading",),
}  # fmt: skip
#: Attributes of objects, used by methods of their own class too.
ATTRIBUTES: Final[Mapping[type, Collection[str]]] = {
    HttpToolsProtocol: (
        "client", "connections", "cycle", "expect_100_continue", "flow", "headers", "loop", "parser", "pipeline",
        "scope", "server_state", "transport", "url",
    ),
    RequestResponseCycle: (
        "body", "chunked_encoding", "disconnected", "expected_content_length", "message_event", "more_body",
        "response_complete", "response_started", "waiting_for_100_continue",
    ),
    FlowControl: ("read_paused",),
    # Stopping calls `shutdown` of each connection.
    Server: ("connections", "shutdown"),
    FrameProtocol: ("eof_sent", "parser_exc", "reader"),
    StreamReader: ("buffer",),
}  # fmt: skip


def check_hooks() -> None:
    """Check that every hook exists.

    Raises:
        ServiceError: a hook is missing; the message names it.
    """
    lacking = [
        f"{owner.__name__}.{name}" for owner, names in METHODS.items() for name in names if name not in vars(owner)
    ]
    for owner, names in ATTRIBUTES.items():
        used = {name for method in vars(owner).values() if isfunction(method) for name in method.__code__.co_names}
        lacking += [f"{owner.__name__}.{name}" for name in names if name not in used]
    lacking += [f"HttpRequestParser: {name}" for name in CALLBACKS if name not in _called()]
    if lacking:
        raise ServiceError(
            f"uvicorn, httptools or websockets is another version than the lock file names: no {', '.join(lacking)}"
        )


def _called() -> set[str]:
    """Return the callbacks that the parser calls for a request."""
    called: set[str] = set()

    def note(name: str, *_: object) -> None:
        called.add(name)

    parser = httptools.HttpRequestParser(SimpleNamespace(**{name: partial(note, name) for name in CALLBACKS}))
    parser.feed_data(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\n\r\n.")
    return called
