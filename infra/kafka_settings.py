"""Settings of Kafka, in the terms of librdkafka: connections to brokers, and how nodes share the work."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, model_validator
from pydantic_settings import BaseSettings

from infra import urls
from infra.errors import WrongSetting, variable
from streams.kafka.connection import (
    AUTHENTICATED,
    ENCRYPTED,
    KafkaConnection,
    SaslMechanism,
    SecurityProtocol,
)
from streams.kafka.credentials import TokenClient, UnusableFile
from topics import catalog

#: Kafka limits topic names to 249 characters.
LONGEST_PREFIX: Final = 249 - max(len(topic.name.removeprefix(catalog.APP)) for topic in catalog.topics(0))

#: Fields of a mechanism, which are required for it; further ones of OAUTHBEARER.
_USER: Final = ("kafka_sasl_username", "kafka_sasl_password")
_TOKENS: Final = (
    "kafka_sasl_oauthbearer_token_endpoint_url",
    "kafka_sasl_oauthbearer_client_id",
    "kafka_sasl_oauthbearer_client_secret",
)
_TOKENS_MORE: Final = ("kafka_sasl_oauthbearer_scope", "kafka_https_ca_location")
#: Fields that apply to some protocols only.
_SASL: Final = ("kafka_sasl_mechanism", *_USER, *_TOKENS, *_TOKENS_MORE)
_SSL: Final = (
    "kafka_ssl_ca_location",
    "kafka_ssl_certificate_location",
    "kafka_ssl_key_location",
    "kafka_ssl_key_password",
    "kafka_ssl_endpoint_identification_algorithm",
)


def _name_of_topics(text: str) -> str:
    if not re.fullmatch(r"[a-zA-Z0-9._-]+", text):
        raise ValueError("must consist of letters, digits, '.', '_' and '-'")
    return text


def _endpoint(url: str) -> str:
    if not urls.is_http(url):
        raise ValueError("must be an http:// or https:// URL with a host")
    return url


class KafkaSettings(BaseSettings):
    """Settings that apply only if the log is Kafka; wrong values are always refused."""

    kafka_prefix: Annotated[str, AfterValidator(_name_of_topics)] = Field(
        default=catalog.APP,
        max_length=LONGEST_PREFIX,
        description="The consumer group on Kafka, and the prefix of all topic names. Services that share a cluster "
        "need different ones. Fixed at the first start.",
    )
    kafka_replication: int | None = Field(
        default=None,
        ge=1,
        le=32767,
        description="Copies of each topic on Kafka; by default 3, or as many as there are brokers. If this is set, a "
        "start refuses topics with fewer.",
    )
    kafka_security_protocol: Annotated[SecurityProtocol, BeforeValidator(str.lower)] = Field(
        default="plaintext",
        description="Protocol of the brokers: `plaintext`, `ssl` (encrypted), `sasl_plaintext` (with a user and "
        "password) or `sasl_ssl` (both).",
    )
    kafka_sasl_mechanism: Annotated[SaslMechanism, BeforeValidator(str.upper)] | None = Field(
        default=None, description="SASL mechanism: `PLAIN`, `SCRAM-SHA-256`, `SCRAM-SHA-512` or `OAUTHBEARER`."
    )
    kafka_sasl_username: str | None = Field(default=None, min_length=1, description="User on the brokers.")
    kafka_sasl_password: SecretStr | None = Field(default=None, min_length=1, description="Password of that user.")
    kafka_sasl_oauthbearer_token_endpoint_url: Annotated[str, AfterValidator(_endpoint)] | None = Field(
        default=None, description="Where tokens for OAUTHBEARER come from, by OAuth 2.0 client credentials."
    )
    kafka_sasl_oauthbearer_client_id: str | None = Field(
        default=None, min_length=1, description="Client at that endpoint."
    )
    kafka_sasl_oauthbearer_client_secret: SecretStr | None = Field(
        default=None, min_length=1, description="Secret of that client."
    )
    kafka_sasl_oauthbearer_scope: str | None = Field(
        default=None, min_length=1, description="Scope to ask that endpoint for."
    )
    kafka_https_ca_location: Path | None = Field(
        default=None,
        description="Certificates of the authorities to trust for that endpoint (a PEM file, or a directory of "
        "hashed names); by default those that the system trusts.",
    )
    kafka_ssl_ca_location: Path | None = Field(
        default=None,
        description="Certificates of the authorities to trust for brokers (a PEM file, or a directory of hashed "
        "names); by default those that the system trusts.",
    )
    kafka_ssl_certificate_location: Path | None = Field(
        default=None, description="Certificate of this client, if brokers ask for one (a PEM file)."
    )
    kafka_ssl_key_location: Path | None = Field(
        default=None, description="Private key of that certificate (a PEM file)."
    )
    kafka_ssl_key_password: SecretStr | None = Field(default=None, min_length=1, description="Password of that key.")
    kafka_ssl_endpoint_identification_algorithm: (
        Annotated[Literal["https", "none"], BeforeValidator(str.lower)] | None
    ) = Field(
        default=None,
        description="`https` (the default) accepts only a certificate for the broker's host; `none` accepts any "
        "that an authority signed.",
    )

    kafka_session_seconds: int = Field(
        default=15,
        ge=6,
        le=60,
        description="Seconds without a heartbeat until a node's Kafka partitions go to other nodes.",
    )
    standbys: int = Field(
        default=1,
        ge=0,
        le=3,
        description="Other nodes that keep a table of each partition on Kafka, ready to take it over at once.",
    )

    @model_validator(mode="after")
    def _connects(self) -> KafkaSettings:
        protocol = self.kafka_security_protocol
        for fields, protocols in (_SASL, AUTHENTICATED), (_SSL, ENCRYPTED):
            for field in fields:
                if getattr(self, field) is not None and protocol not in protocols:
                    raise ValueError(
                        f"{variable(field)}: needs {variable('kafka_security_protocol')}={' or '.join(protocols)}"
                    )
        if protocol in AUTHENTICATED:
            mechanism = self.kafka_sasl_mechanism
            needed, other = (_TOKENS, _USER) if mechanism == "OAUTHBEARER" else (_USER, (*_TOKENS, *_TOKENS_MORE))
            for field in ("kafka_sasl_mechanism", *needed):
                if getattr(self, field) is None:
                    raise ValueError(f"{variable(field)}: must be set for {protocol}")
            for field in other:
                if getattr(self, field) is not None:
                    raise ValueError(
                        f"{variable(field)}: {variable('kafka_sasl_mechanism')}={mechanism} does not use it"
                    )
        self._require("kafka_ssl_key_location", "kafka_ssl_certificate_location")
        self._require("kafka_ssl_certificate_location", "kafka_ssl_key_location")
        self._require("kafka_ssl_key_password", "kafka_ssl_key_location")
        return self

    def _require(self, field: str, other: str) -> None:
        if getattr(self, field) is not None and getattr(self, other) is None:
            raise ValueError(f"{variable(field)}: needs {variable(other)} too")

    def connection(self, hosts: tuple[str, ...]) -> KafkaConnection:
        """Return the connection to the brokers at `hosts` (`host:port`), after one read of its files as a check.

        Raises:
            WrongSetting: a file of certificates or keys cannot be used.
        """
        connection = KafkaConnection(
            hosts,
            self.kafka_security_protocol,
            self.kafka_sasl_mechanism or "PLAIN",
            self.kafka_sasl_username,
            _plain(self.kafka_sasl_password),
            self.kafka_ssl_ca_location,
            self.kafka_ssl_certificate_location,
            self.kafka_ssl_key_location,
            _plain(self.kafka_ssl_key_password),
            self.kafka_ssl_endpoint_identification_algorithm != "none",
            self.kafka_prefix,
            self._tokens(),
        )
        try:
            connection.ssl_context()
            if connection.tokens is not None:
                connection.tokens.ssl_context()
        except UnusableFile as error:
            raise WrongSetting(f"kafka_{error.field}", str(error)) from error
        return connection

    def _tokens(self) -> TokenClient | None:
        endpoint = self.kafka_sasl_oauthbearer_token_endpoint_url
        secret = _plain(self.kafka_sasl_oauthbearer_client_secret)
        if endpoint is None or secret is None:
            return None
        client, scope = self.kafka_sasl_oauthbearer_client_id or "", self.kafka_sasl_oauthbearer_scope
        return TokenClient(endpoint, client, secret, scope, self.kafka_https_ca_location)


def _plain(secret: SecretStr | None) -> str | None:
    return None if secret is None else secret.get_secret_value()
