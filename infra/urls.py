"""URLs of external services, the log and the control plane's database, and how to show them."""

import re
from pathlib import Path
from typing import ClassVar, Final, Literal
from urllib.parse import SplitResult, parse_qsl, urlencode, urlsplit

import msgspec

#: `scheme://user:password@`: the password extends to the last @ before the path.
_PASSWORD: Final = re.compile(r"(?<=://)([^/?#]*?):([^/?#]*)@")
_SECRET_OPTION: Final = re.compile(r"(?i)([?&](?:password|sslpassword|passfile)=)[^&#]*")
_HOST: Final = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):(\d{1,5})")

_DRIVERS: Final = {
    "sqlite": "sqlite+aiosqlite",
    "sqlite+aiosqlite": "sqlite+aiosqlite",
    "postgres": "postgresql+asyncpg",
    "postgresql": "postgresql+asyncpg",
    "postgresql+asyncpg": "postgresql+asyncpg",
}
#: Options that a URL of PostgreSQL may have: asyncpg's, and one of SQLAlchemy.
_POSTGRESQL_OPTIONS: Final = (
    *("database", "gsslib", "host", "krbsrvname", "passfile", "password", "port", "prepared_statement_cache_size"),
    *("service", "servicefile", "ssl", "ssl_max_protocol_version", "ssl_min_protocol_version", "sslcert", "sslcrl"),
    *("sslkey", "sslmode", "sslnegotiation", "sslpassword", "sslrootcert", "target_session_attrs", "user"),
)


class Embedded(msgspec.Struct, frozen=True):
    """The log in this process; with `sync` False it acknowledges before the disk has the bytes."""

    kind: ClassVar[Literal["embedded"]] = "embedded"
    directory: Path
    sync: bool = True


class Kafka(msgspec.Struct, frozen=True):
    """The log on Apache Kafka; `hosts` are `host:port` pairs of the first brokers to contact."""

    kind: ClassVar[Literal["kafka"]] = "kafka"
    hosts: tuple[str, ...]


Broker = Embedded | Kafka


def parse_broker(url: str, default_directory: Path) -> Broker:
    """Parse `embedded://[DIR][?sync=0]` or `kafka://host:port,...`.

    Raises:
        ValueError: another scheme, a host without a port, an unknown option.
    """
    scheme, separator, rest = url.partition("://")
    if not separator or scheme not in ("embedded", "kafka"):
        raise ValueError("must begin with embedded:// or kafka://")
    return _embedded(rest, default_directory) if scheme == "embedded" else _kafka(rest)


def _embedded(rest: str, default_directory: Path) -> Embedded:
    directory, _, query = rest.partition("?")
    options = dict(parse_qsl(query, keep_blank_values=True))
    sync = options.pop("sync", "1")
    if options or sync not in ("0", "1"):
        raise ValueError("takes one option only: ?sync=0 or ?sync=1")
    return Embedded(Path(directory).expanduser() if directory else default_directory, sync == "1")


def _kafka(rest: str) -> Kafka:
    hosts = tuple(host.strip() for host in rest.rstrip("/").split(","))
    for host in hosts:
        match = _HOST.fullmatch(host)
        if not match or not 0 < int(match[1]) < 65536:
            raise ValueError(f"{host!r} is not host:port")
    return Kafka(hosts)


def host_and_port(text: str) -> tuple[str, int]:
    """Parse `host:port`, with an IPv6 address in brackets; port 0 means a free one.

    Raises:
        ValueError: it is something else.
    """
    match = _HOST.fullmatch(text)
    if not match or not int(match[1]) < 65536:
        raise ValueError("must be host:port, such as 127.0.0.1:8001 or [::1]:8001")
    return text.rpartition(":")[0].strip("[]"), int(match[1])


def database_url(url: str) -> str:
    """Return the URL with the asynchronous driver that it needs.

    Raises:
        ValueError: neither SQLite nor PostgreSQL, a SQLite URL without a file or with a host, a wrong port, or an
            unknown option of PostgreSQL.
    """
    parts = urlsplit(url)
    if parts.scheme not in _DRIVERS or "://" not in url:
        raise ValueError("must begin with sqlite:// or postgresql://")
    try:
        _ = parts.port
    except ValueError:
        raise ValueError("has an invalid port") from None
    driver = _DRIVERS[parts.scheme]
    if driver.startswith("sqlite") and parts.netloc:
        raise ValueError("needs three slashes before a file: sqlite:///FILE, or sqlite:////FILE from the root")
    if driver.startswith("sqlite") and not parts.path.strip("/"):
        raise ValueError("names no file")
    # `urlunsplit` would drop the empty host of SQLite URLs.
    query = _query(parts, driver)
    return f"{driver}://{parts.netloc}{parts.path}{'?' + query if query else ''}"


def _query(parts: SplitResult, driver: str) -> str:
    if not driver.endswith("asyncpg"):
        return parts.query
    # libpq's `sslmode` is asyncpg's `ssl`, with the same values.
    options = parse_qsl(parts.query, keep_blank_values=True)
    for name, value in options:
        if name not in _POSTGRESQL_OPTIONS:
            known = ", ".join(_POSTGRESQL_OPTIONS)
            raise ValueError(f"has the unknown option {name}: remove it, or use one of {known}")
        if name == "prepared_statement_cache_size" and not value.isdecimal():
            raise ValueError(f"has {name}={value}, which must be a number")
    return urlencode([("ssl" if name == "sslmode" else name, value) for name, value in options])


def http_url(host: str, port: int | str) -> str:
    """Return the URL of a host, with an IPv6 address in brackets."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def local_url(host: str, port: int | str) -> str:
    """Return the local address of a service that listens on a host."""
    return http_url("127.0.0.1" if host in ("0.0.0.0", "::") else host, port)


def redact_url(url: str) -> str:
    return _SECRET_OPTION.sub(r"\1***", _PASSWORD.sub(r"\1:***@", url))


def is_http(url: str) -> bool:
    """Return whether a text is an `http://` or `https://` URL with a host."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        return False
    return usable and url.isprintable() and " " not in url
