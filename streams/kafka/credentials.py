"""Certificates of authorities, and the client of a token endpoint, without the Kafka client."""

import ssl
from pathlib import Path

import msgspec

from topics.errors import ServiceError


class UnusableFile(ServiceError):
    """A file of certificates or keys cannot be used; `field` of the connection names it."""

    def __init__(self, field: str, fault: str) -> None:
        super().__init__(fault)
        self.field = field


class TokenClient(msgspec.Struct, frozen=True):
    """Who asks for tokens, and where (OAuth 2.0, client credentials)."""

    endpoint: str
    id: str
    secret: str
    scope: str | None = None
    #: CA certificates for the endpoint, PEM: a file, or a directory of hashed names; None for the system's.
    ca_location: Path | None = None

    def ssl_context(self) -> ssl.SSLContext:
        """Return the TLS context for the endpoint; raise UnusableFile if the certificates cannot be used."""
        return trusting("https_ca_location", self.ca_location)

    def __repr__(self) -> str:
        """Show no secret."""
        return f"TokenClient({self.endpoint!r}, {self.id!r})"


def trusting(field: str, place: Path | None) -> ssl.SSLContext:
    """Return a TLS context that trusts these authorities, or the system's; raise UnusableFile for `field`."""
    if place is None:
        return ssl.create_default_context()
    try:
        if place.is_dir():  # OpenSSL reads it only when a server presents its certificate.
            return ssl.create_default_context(capath=place)
        return ssl.create_default_context(cafile=place)
    except OSError as error:
        raise UnusableFile(field, f"{place}: {reason(error)}") from error


def reason(error: OSError) -> str:
    """Return why a file of certificates or keys cannot be used."""
    if isinstance(error, ssl.SSLError):
        return (error.reason or "no certificate or key in PEM").replace("_", " ").lower()
    return error.strerror or str(error)
