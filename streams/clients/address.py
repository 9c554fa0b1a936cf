"""The address of an engine, and the limits of its calls."""

from urllib.parse import urlsplit, urlunsplit

import msgspec

from streams.clients.restarts import Restarts


class EngineAddress(msgspec.Struct, frozen=True, kw_only=True):
    """The address, key, model and limits of an engine.

    A URL without a path gets the protocol's path, a URL that ends in `/v1` the rest of that path; any other URL is used
    as it is: `http://box:8000`, `https://api.example.com/v1`, `http://box:8080/inference`.
    """

    url: str
    #: Sent as a bearer token.
    key: str | None = None
    #: The model that requests name; None for the engine's own.
    model: str | None = None
    #: Limit of one call, from the connection to the last byte of the answer.
    timeout_s: float
    #: Concurrent calls of all jobs together.
    limit: int = 4
    #: Set for an engine that the service restarts when it dies; shared by all its clients.
    restarts: Restarts | None = None

    def __post_init__(self) -> None:
        """Check the fields.

        Raises:
            ValueError: no http URL, a key that does not fit a header, or too small a number; it never shows the key.
        """
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("the URL of an engine begins with http:// or https:// and a host")
        if self.key is not None and not (self.key.isascii() and self.key.isprintable() and " " not in self.key):
            raise ValueError("the key of an engine has characters that no header can carry")
        if self.timeout_s <= 0 or self.limit < 1:
            raise ValueError("an engine needs a time-out above 0 s and a limit of 1 or more")

    def __repr__(self) -> str:
        """Show only the host: the other fields and the URL may contain keys."""
        return f"EngineAddress({urlsplit(self.url).hostname})"

    @property
    def origin(self) -> str:
        """Scheme, host and port. The rest is not shown: a path may contain a key, the user part a password."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"

    @property
    def local(self) -> bool:
        return urlsplit(self.url).hostname in ("127.0.0.1", "::1", "localhost")

    def endpoint(self, path: str) -> str:
        """Return the URL to call; `path` is the path of the protocol, such as `/v1/chat/completions`."""
        parts = urlsplit(self.url)
        base = parts.path.rstrip("/")
        if not base:
            url_path = path
        elif base.endswith("/v1"):
            url_path = base + path.removeprefix("/v1")
        else:
            url_path = parts.path
        return urlunsplit(parts._replace(path=url_path, fragment=""))
