"""The private members of uvicorn that connection limits use: startup fails if one is missing."""

from unittest import mock

import pytest
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

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
