"""Connection settings for brokers: addresses, encryption and credentials, for both client libraries."""

import ssl
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from streams.kafka.credentials import TokenClient, UnusableFile, reason, trusting
from topics.catalog import APP

SecurityProtocol = Literal["plaintext", "ssl", "sasl_plaintext", "sasl_ssl"]
SaslMechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]

ENCRYPTED: Final = ("ssl", "sasl_ssl")
AUTHENTICATED: Final = ("sasl_plaintext", "sasl_ssl")


class KafkaConnection(msgspec.Struct, frozen=True):
    """The settings of a connection to a service's topics; most fields are named after librdkafka's properties.

    `bootstrap` lists `host:port` pairs. The user and password apply to protocols with `sasl`, the `ssl_*` fields to
    protocols with `ssl`; the service's settings check their combination. Any thread.
    """

    bootstrap: tuple[str, ...]
    security_protocol: SecurityProtocol = "plaintext"
    sasl_mechanism: SaslMechanism = "PLAIN"
    sasl_username: str | None = None
    sasl_password: str | None = None
    #: CA certificates for the brokers, PEM: a file, or a directory of hashed names; None for the system's.
    ssl_ca_location: Path | None = None
    #: The client's certificate and key, PEM, if the brokers require them.
    ssl_certificate_location: Path | None = None
    ssl_key_location: Path | None = None
    ssl_key_password: str | None = None
    #: Whether a broker's certificate must match its host name.
    ssl_check_hostname: bool = True
    #: The consumer group, and the prefix of all topics' names on the brokers.
    prefix: str = APP
    #: For OAUTHBEARER, instead of user and password.
    tokens: TokenClient | None = None

    def __repr__(self) -> str:
        """Show the brokers and the protocol, never a password."""
        return f"KafkaConnection({self.addresses!r}, {self.security_protocol!r})"

    @property
    def addresses(self) -> str:
        return ",".join(self.bootstrap)

    def topic(self, name: str) -> str:
        return self.prefix + name[len(APP) :]

    def catalogued(self, topic: str) -> str:
        return APP + topic[len(self.prefix) :]

    def aiokafka(self) -> dict[str, Any]:
        """Return the connection arguments for any aiokafka client; raise UnusableFile like `ssl_context`."""
        provider = None
        if self.tokens is not None:
            from streams.kafka.tokens import TokenProvider  # Settings are read without the Kafka client.

            provider = TokenProvider(self.tokens)
        return {
            "bootstrap_servers": self.addresses,
            "security_protocol": self.security_protocol.upper(),
            "ssl_context": self.ssl_context(),
            "sasl_mechanism": self.sasl_mechanism,
            "sasl_plain_username": self.sasl_username,
            "sasl_plain_password": self.sasl_password,
            "sasl_oauth_token_provider": provider,
        }

    def librdkafka(self) -> dict[str, str]:
        wanted: dict[str, object] = {"bootstrap.servers": self.addresses, "security.protocol": self.security_protocol}
        if self.security_protocol in AUTHENTICATED:
            wanted |= {
                "sasl.mechanism": self.sasl_mechanism,
                "sasl.username": self.sasl_username,
                "sasl.password": self.sasl_password,
            }
        if self.tokens is not None:
            wanted |= {
                "sasl.oauthbearer.method": "oidc",
                "sasl.oauthbearer.token.endpoint.url": self.tokens.endpoint,
                "sasl.oauthbearer.client.id": self.tokens.id,
                "sasl.oauthbearer.client.secret": self.tokens.secret,
                "sasl.oauthbearer.scope": self.tokens.scope,
                "https.ca.location": self.tokens.ca_location,
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
        """Return the TLS context, None without TLS; raise UnusableFile if a certificate or key cannot be used."""
        if self.security_protocol not in ENCRYPTED:
            return None
        context = trusting("ssl_ca_location", self.ssl_ca_location)
        context.check_hostname = self.ssl_check_hostname
        if self.ssl_certificate_location is not None:
            try:
                # Never None, or OpenSSL would prompt at the terminal.
                context.load_cert_chain(
                    self.ssl_certificate_location, self.ssl_key_location, password=self.ssl_key_password or ""
                )
            except OSError as error:
                raise self._unusable_pair(error) from error
        return context

    def _unusable_pair(self, error: OSError) -> UnusableFile:
        """Return an error that names the unusable one of the client's two files."""
        for field in "ssl_certificate_location", "ssl_key_location":
            place = getattr(self, field)
            try:
                place.read_bytes()
            except OSError as unread:
                return UnusableFile(field, f"{place}: {reason(unread)}")
        return UnusableFile(
            "ssl_certificate_location",
            f"{self.ssl_certificate_location} and the key {self.ssl_key_location} do not make a pair: {reason(error)}",
        )
