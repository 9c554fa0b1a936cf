"""Keys of projects and organizations."""

from ._errors import WrongKey


def checked_key(key: str) -> str:
    """Return a key, which may be empty, if it can be sent.

    Raises:
        WrongKey: no HTTP header can hold it. Unlike the HTTP library's message, ours does not show it.
    """
    if not (key.isascii() and key.isprintable()) or key != key.strip():
        raise WrongKey(401, "it has line breaks, spaces at an end, or letters that no key has")
    return key
