"""Keys of projects and organizations."""

from ._errors import WrongKey


def checked_key(key: str) -> str:
    """Return a key, which may be empty, if it can be sent.

    Raises:
        WrongKey: no HTTP header can hold it. Unlike the HTTP library's message, ours does not show it.
    """
    if not (key.isascii() and key.isprintable()) or key != key.strip():
        raise WrongKey(
            401,
            "the key cannot be sent in an HTTP header: remove line breaks, spaces at its ends, and non-ASCII "
            "characters",
        )
    return key
