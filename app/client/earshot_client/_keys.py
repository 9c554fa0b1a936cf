"""Keys of projects and organizations."""

from ._errors import WrongKey


def checked_key(key: str) -> str:
    """Return a key, which may be empty, that can be sent.

    Raises:
        WrongKey: no HTTP header can hold it. The message does not show it, as that of the HTTP library would.
    """
    if not (key.isascii() and key.isprintable()) or key != key.strip():
        raise WrongKey(401, "it has line breaks, spaces at an end, or letters that no key has")
    return key
