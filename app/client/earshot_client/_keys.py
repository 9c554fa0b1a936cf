"""Keys of projects and organizations."""

from ._errors import WrongKey


def checked_key(key: str) -> str:
    """Return a key, which may be empty, if it can be sent.

    Raises:
        WrongKey: no HTTP header can hold it. Unlike the HTTP library's message, ours does not show it.
    """
    if "\n" in key or "\r" in key:
        fault = "a line break"
    elif key != key.strip():
        fault = "a space at its beginning or end"
    elif not (key.isascii() and key.isprintable()):
        fault = "a character that is not printable ASCII"
    else:
        return key
    raise WrongKey(401, f"the key has {fault}, which cannot be sent in an HTTP header: remove it")
