"""The private members of uvicorn that connection limits use: startup fails if one is missing."""

from inspect import isfunction
from unittest import mock

import httptools
import pytest
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import Server
from websockets.streams import StreamReader

from infra.service import service
from infra.service.http_hooks import METHODS, check_hooks
from infra.service.http_protocol import ClientConnection
from infra.settings import Settings
from topics.errors import ServiceError


def test_all_hooks_exist() -> None:
    check_hooks()


def test_overridden_methods_are_checked() -> None:
    overridden = {name for name in vars(ClientConnection) if name in vars(HttpToolsProtocol) and name[:2] != "__"}
    assert overridden <= set(METHODS[HttpToolsProtocol])


@pytest.mark.parametrize("name", ["on_body", "_get_upgrade", "_unset_keepalive_if_required"])
def test_missing_method_prevents_start(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(HttpToolsProtocol, name)
    with pytest.raises(ServiceError, match=f"no HttpToolsProtocol.{name}"):
        service._server(None, Settings(), mock.Mock())


def test_unused_flow_control_attribute_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("__init__", "pause_reading", "resume_reading"):
        monkeypatch.setattr(FlowControl, name, lambda *_: None)
    with pytest.raises(ServiceError, match=r"no FlowControl\.read_paused$"):
        check_hooks()


@pytest.mark.parametrize(("owner", "name"), [(StreamReader, "buffer"), (Server, "connections")])
def test_missing_socket_attribute_is_reported(owner: type, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for method, value in list(vars(owner).items()):
        if isfunction(value) and name in value.__code__.co_names:
            monkeypatch.setattr(owner, method, lambda *_: None)
    with pytest.raises(ServiceError, match=f"no {owner.__name__}.{name}$"):
        check_hooks()


def test_parser_with_other_callbacks_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    class Deaf:
        def __init__(self, protocol: object) -> None:
            pass

        def feed_data(self, data: bytes) -> None:
            pass

    monkeypatch.setattr(httptools, "HttpRequestParser", Deaf)
    with pytest.raises(ServiceError, match="HttpRequestParser: on_message_begin, "):
        check_hooks()
