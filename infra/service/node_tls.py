"""TLS between nodes, with the operator's certificates: a node forwards requests with the keys of clients."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import TYPE_CHECKING

from infra.errors import WrongSetting

if TYPE_CHECKING:
    from infra.settings import Settings


def trust(settings: Settings) -> ssl.SSLContext | None:
    """Return the context for connections to other nodes; None if it is Python's own.

    Raises:
        WrongSetting: the authorities cannot be read.
    """
    if settings.node_ca is None:
        return None
    try:
        return ssl.create_default_context(cafile=settings.node_ca)
    except OSError as error:
        raise WrongSetting("node_ca", f"{settings.node_ca}: {_reason(error)}") from error


def certificate(settings: Settings) -> ssl.SSLContext | None:
    """Return the context in which a node answers others; None if it does so without TLS.

    Raises:
        WrongSetting: the certificate and the key cannot be read, or do not make a pair.
    """
    if settings.node_certificate is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    _check_readable("node_certificate", settings.node_certificate)
    _check_readable("node_key", settings.node_key)
    try:
        # Never None, or OpenSSL would prompt at the terminal.
        context.load_cert_chain(settings.node_certificate, settings.node_key, password="")
    except OSError as error:
        fault = f"{settings.node_certificate} and the key {settings.node_key} do not make a pair: {_reason(error)}"
        raise WrongSetting("node_certificate", fault) from error
    return context


def _check_readable(field: str, file: Path | None) -> None:
    try:
        _ = file and file.read_bytes()
    except OSError as error:
        raise WrongSetting(field, f"{file}: {_reason(error)}") from error


def _reason(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or "no certificate or key in PEM").replace("_", " ").lower()
    return error.strerror or str(error)
