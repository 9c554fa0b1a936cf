"""Settings of the service itself: its addresses, what it keeps, and its bounds."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr
from pydantic_settings import BaseSettings

from app.options import MIB
from infra import urls
from streams import cores
from streams.deliveries import options as deliveries
from topics import apikeys, catalog

EMBEDDED_PARTITIONS: Final = 4
#: On the embedded log with lanes, which share them: so that the number of lanes can grow.
LANES_PARTITIONS: Final = 16
KAFKA_PARTITIONS: Final = 16
#: One event loop keeps about so many cores busy with its workers.
CORES_OF_A_LANE: Final = 4
#: The vendor's clients send pieces of 5,000,000 bytes. Kafka's topics are sized for their largest record.
ROOMY_CHUNK_LIMIT: Final = 5 * MIB

#: As browsers write it: https://html.spec.whatwg.org/multipage/browsers.html#ascii-serialisation-of-an-origin.
_ORIGIN: Final = re.compile(r"https?://([a-z0-9]([a-z0-9.-]*[a-z0-9])?|\[[0-9a-f:.]+\])(:[1-9][0-9]{0,4})?")


def _chosen_key(key: SecretStr) -> SecretStr:
    if why := apikeys.fault(key.get_secret_value()):
        raise ValueError(why)
    return key


def _hard_to_guess(key: SecretStr) -> SecretStr:
    if why := apikeys.weakness(key.get_secret_value()):
        raise ValueError(f"{why}: everything is open to whoever guesses it (`openssl rand -hex 24` makes a good one)")
    return key


def _from_home(path: Path) -> Path:
    return Path(os.path.expanduser(path))  # Unlike the method of `Path`, it accepts the name of an unknown user.


def _broker(url: str) -> str:
    urls.parse_broker(url, Path())
    return url


def _address(text: str) -> str:
    urls.host_and_port(text)
    return text


def _origins(text: str) -> str:
    for origin in text.split(","):
        one = origin.strip()
        # Browsers leave out the default port of the scheme.
        usual = one.endswith(":443" if one.startswith("https:") else ":80")
        if usual or not _ORIGIN.fullmatch(one) or not urls.is_http(one):
            raise ValueError("must be origins as https://app.example.org, in lower case, without path; not *")
    return text


def _networks(text: str) -> str:
    deliveries.parse_networks(text)
    return text


def _retries(text: str) -> str:
    deliveries.parse_retries(text)
    return text


def _node_url(url: str) -> str:
    if not urls.is_http(url) or set(url.partition("://")[2]) & set("/?#"):
        raise ValueError("must be http:// or https://, a host, and maybe a port, and nothing more")
    return url


ChosenKey = Annotated[SecretStr, AfterValidator(_chosen_key)]


class ServiceSettings(BaseSettings):
    """Settings that apply with any log."""

    host: str = Field(default="127.0.0.1", min_length=1, description="Address that the HTTP server listens on.")
    port: int = Field(
        default=8000, ge=0, le=65535, description="Port that the HTTP server listens on; 0 takes a free one."
    )
    data: Annotated[Path, AfterValidator(_from_home)] = Field(
        default=Path("data"), description="Directory of all data on this machine."
    )
    broker: Annotated[str, AfterValidator(_broker)] = Field(
        default="embedded://",
        description="The log: `embedded://` (in the data directory), `embedded://DIR`, or `kafka://a:9092,b:9092`. "
        "`?sync=0`: acknowledge before the embedded log is on disk.",
    )
    database_url: Annotated[str, AfterValidator(urls.database_url)] | None = Field(
        default=None,
        repr=False,
        description="Database of organizations, projects and keys: `sqlite:///FILE` or "
        "`postgresql://user:password@host/name`; by default a SQLite file in the data directory.",
    )
    advertise: Annotated[str, AfterValidator(_node_url)] | None = Field(
        default=None, description="URL at which other nodes on the same Kafka reach this one; by default HOST and PORT."
    )
    node_listen: Annotated[str, AfterValidator(_address)] | None = Field(
        default=None,
        description="Address and port (HOST:PORT) for other nodes, with TLS; name it in ADVERTISE, as https://. With "
        "lanes it is not used: their ports have TLS.",
    )
    node_certificate: Path | None = Field(
        default=None,
        description="Certificate of this node for TLS between nodes on Kafka, and the chain to its authority (a PEM "
        "file).",
    )
    node_key: Path | None = Field(default=None, description="Private key of that certificate (a PEM file).")
    node_ca: Path | None = Field(
        default=None,
        description="Certificates of the authorities to trust for other nodes (a PEM file); by default those that the "
        "system trusts.",
    )
    partitions: int | None = Field(
        default=None,
        ge=1,
        le=4096,
        description=f"Partitions of every topic, fixed at the first start; by default {EMBEDDED_PARTITIONS} on the "
        f"embedded log, {LANES_PARTITIONS} if it starts with lanes, and {KAFKA_PARTITIONS} on Kafka.",
    )
    lanes: int | None = Field(
        default=None,
        ge=1,
        le=64,
        description="Lanes of this machine: event loops behind one port, each with its own partitions; by default one "
        f"for {CORES_OF_A_LANE} cores, but no more than partitions. Another number takes effect at the next start.",
    )
    model: str | None = Field(
        default=None,
        min_length=1,
        description="Sound model for new sessions, by name or directory; by default the one chosen by `earshot "
        "models use`, otherwise yamnet-ced.",
    )
    chunk_limit: int | None = Field(
        default=None,
        ge=catalog.DEFAULT_CHUNK_LIMIT,
        le=64 * MIB,
        description="Largest chunk under `/sense/api/v1` in bytes of audio (1 MiB elsewhere). By default "
        f"{ROOMY_CHUNK_LIMIT} on the embedded log if BODY_BYTES and QUEUE_BYTES allow it, which suits the vendor's "
        f"clients, otherwise {catalog.DEFAULT_CHUNK_LIMIT}.",
    )
    bootstrap_project_key: ChosenKey | None = Field(
        default=None, description="Key of the demo project made at the first start: 20 or more printable characters."
    )
    bootstrap_org_key: ChosenKey | None = Field(
        default=None,
        description="Key of the demo organization made at the first start: 20 or more printable characters.",
    )
    queue_bytes: int = Field(
        default=64 * MIB,
        ge=1,
        description="Bytes that may wait for the log before uploads are answered 503. Chunks of one project may take "
        "half of them, parts of recordings a quarter; projects take turns.",
    )
    project_sessions: int = Field(
        default=10_000,
        ge=1,
        description="Open sessions of one project on a node. A session counts until it is analysed to its end. "
        "Further ones are answered 503.",
    )
    project_jobs: int = Field(
        default=1000,
        ge=1,
        description="Open jobs of one project on a node. A job counts until it is done and in the ledger. Further "
        "ones are answered 503.",
    )
    workers: int = Field(
        default_factory=cores.usable,
        ge=1,
        le=1024,
        description="Processes that run the model; by default one per core, within the quota of the control group.",
    )
    log_level: Annotated[Literal["debug", "info", "warning", "error"], BeforeValidator(str.lower)] = Field(
        default="info", description="Least severe event to log: `debug`, `info`, `warning` or `error`."
    )
    log_format: Annotated[Literal["json", "console"], BeforeValidator(str.lower)] = Field(
        default="json", description="Form of the log: `json` lines, or `console` for people."
    )
    erase_seconds: int = Field(
        default=3 * 3600,
        ge=1,
        le=3 * 3600,
        description="Running time between two rounds that erase deleted data from the files of the data directory: its "
        "bytes are gone after two rounds, six hours, at the latest.",
    )
    cors_origins: Annotated[str, AfterValidator(_origins)] | None = Field(
        default=None,
        description="Comma-separated origins whose pages may call the service from a browser: "
        "`https://app.example.org`. Each exactly as browsers send it; by default none.",
    )
    connections: int = Field(
        default=16384, ge=1, description="Concurrent connections of clients; further ones are answered 503."
    )
    connections_per_address: int | None = Field(
        default=None,
        ge=1,
        description="Connections of one address (IPv6: one /64); behind a reverse proxy, all have its address.",
    )
    trusted_proxies: int = Field(
        default=0,
        ge=0,
        le=16,
        description="Number of reverse proxies in front of this service. Each appends to `X-Forwarded-For`, so the "
        "client's address is that many entries from the right. 0: the address that connects.",
    )
    keep_voice: bool = Field(
        default=False,
        description="Keep the recordings that speakers were registered with, so that another model can learn them.",
    )
    voices_url: str | None = Field(
        default=None,
        min_length=1,
        repr=False,
        description="Where such recordings are kept: a directory, by default `voices` in the data directory, or a URL "
        "that fsspec knows, such as `s3://bucket/prefix`.",
    )
    admin_key: Annotated[ChosenKey, AfterValidator(_hard_to_guess)] | None = Field(
        default=None,
        description="Key of the operator's interface `/admin/v1`, 20 or more printable characters, 8 or more of them "
        "different; without one it is off.",
    )
    admin_listen: Annotated[str, AfterValidator(_address)] | None = Field(
        default=None,
        description="Own address (`host:port`) for `/admin/v1`, which then answers nowhere else; by default it "
        "answers at HOST and PORT. `/metrics`, and what `/readyz` waits for, move there with it.",
    )

    delivery_networks: Annotated[str, AfterValidator(_networks)] | None = Field(
        default=None,
        description="Comma-separated networks that alarms may be sent to besides public addresses, as "
        "`192.168.0.0/16,127.0.0.1`: whoever has a project's key can reach everything in them.",
    )
    delivery_retries: Annotated[str, AfterValidator(_retries)] = Field(
        default=deliveries.RETRIES,
        description="Seconds before each attempt to deliver an alarm, comma-separated: after the last one the delivery "
        "has failed.",
    )

    @property
    def allowed_origins(self) -> tuple[str, ...]:
        """Origins whose pages may call the service from a browser."""
        return tuple(origin.strip() for origin in self.cors_origins.split(",")) if self.cors_origins else ()
