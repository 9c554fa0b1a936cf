"""How brokers are reached: addresses, encryption and credentials, for both of our client libraries."""

import ssl
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from topics.catalog import APP
from topics.errors import ServiceError

SecurityProtocol = Literal["plaintext", "ssl", "sasl_plaintext", "sasl_ssl"]
SaslMechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]

ENCRYPTED: Final = ("ssl", "sasl_ssl")
AUTHENTICATED: Final = ("sasl_plaintext", "sasl_ssl")


class UnusableFile(ServiceError):
    """A file of certificates or keys cannot be used; `field` of the connection names it."""

    def __init__(self, field: str, fault: str) -> None:
        super().__init__(fault)
        self.field = field


class KafkaConnection(msgspec.Struct, frozen=True):
    """The connection of a client to a service's topics; most fields are named after the properties of librdkafka.

    `bootstrap` are `host:port` pairs to start from. The user and password belong to the protocols with `sasl`, what
    begins with `ssl` to those with `ssl`; which fit together is checked with the settings.

    From any thread.
    """

    bootstrap: tuple[str, ...]
    security_protocol: SecurityProtocol = "plaintext"
    sasl_mechanism: SaslMechanism = "PLAIN"
    sasl_username: str | None = None
    sasl_password: str | None = None
    #: CA certificates that brokers' certificates are checked against, PEM: a file, or a directory of hashed names; None
    #: for those that the system trusts.
    ssl_ca_location: Path | None = None
    #: The client's own certificate and key, PEM, if the brokers ask for one.
    ssl_certificate_location: Path | None = None
    ssl_key_location: Path | None = None
    ssl_key_password: str | None = None
    #: Whether a broker's certificate must be made out to its host.
    ssl_check_hostname: bool = True
    #: The consumer group, and the prefix of all topics' names on the brokers.
    prefix: str = APP

    def __repr__(self) -> str:
        """Name the brokers and the protocol, never a password."""
        return f"KafkaConnection({self.addresses!r}, {self.security_protocol!r})"

    @property
    def addresses(self) -> str:
        return ",".join(self.bootstrap)

    def topic(self, name: str) -> str:
        return self.prefix + name[len(APP) :]

    def catalogued(self, topic: str) -> str:
        return APP + topic[len(self.prefix) :]

    def aiokafka(self) -> dict[str, Any]:
        """Return the arguments that connect any client of aiokafka; raise UnusableFile as `ssl_context` does."""
        return {
            "bootstrap_servers": self.addresses,
            "security_protocol": self.security_protocol.upper(),
            "ssl_context": self.ssl_context(),
            "sasl_mechanism": self.sasl_mechanism,
            "sasl_plain_username": self.sasl_username,
            "sasl_plain_password": self.sasl_password,
        }

    def librdkafka(self) -> dict[str, str]:
        wanted: dict[str, object] = {
            "bootstrap.servers": self.addresses,
            "security.protocol": self.security_protocol,
        }
        if self.security_protocol in AUTHENTICATED:
            wanted |= {
                "sasl.mechanism": self.sasl_mechanism,
                "sasl.username": self.sasl_username,
                "sasl.password": self.sasl_password,
            }
        if self.security_protocol in ENCRYPTED:
            wanted |= {
                "ssl.ca.location": self.ssl_ca_location,
                "ssl.certificate.location": self.ssl_certificate_location,
                "ssl.key.location": self.ssl_key_location,
                "ssl.key.password": self.ssl_key_password,
                "ssl.endpoint.identification.algorithm": "https" if self.ssl_check_hostname else "none",
            }
        return {name: str(value) for name, value in wanted.items() if value is not None}

    def ssl_context(self) -> ssl.SSLContext | None:
        """Return what TLS needs, None without it; raise UnusableFile if a certificate or key cannot be used."""
        if self.security_protocol not in ENCRYPTED:
            return None
        context = self._trusting()
        context.check_hostname = self.ssl_check_hostname
        if self.ssl_certificate_location is not None:
            try:
                # Never None: OpenSSL would ask at the terminal.
                context.load_cert_chain(
                    self.ssl_certificate_location, self.ssl_key_location, password=self.ssl_key_password or ""
                )
            except OSError as error:
                raise self._unusable_pair(error) from error
        return context

    def _trusting(self) -> ssl.SSLContext:
        place = self.ssl_ca_location
        if place is None:
            return ssl.create_default_context()
        try:
            if place.is_dir():  # nothing of it is read before a broker shows its certificate
                return ssl.create_default_context(capath=place)
            return ssl.create_default_context(cafile=place)
        except OSError as error:
            raise UnusableFile("ssl_ca_location", f"{place}: {_reason(error)}") from error

    def _unusable_pair(self, error: OSError) -> UnusableFile:
        """Tell which of the client's two files is at fault."""
        for field in "ssl_certificate_location", "ssl_key_location":
            place = getattr(self, field)
            try:
                place.read_bytes()
            except OSError as unread:
                return UnusableFile(field, f"{place}: {_reason(unread)}")
        return UnusableFile(
            "ssl_certificate_location",
            f"{self.ssl_certificate_location} and the key {self.ssl_key_location} do not make a pair: {_reason(error)}",
        )


def _reason(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or "no certificate or key in PEM").replace("_", " ").lower()
    return error.strerror or str(error)
