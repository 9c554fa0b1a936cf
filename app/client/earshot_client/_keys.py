"""Keys of projects and organizations, and other values of headers."""

from collections.abc import Mapping

from ._errors import WrongKey


def checked_key(key: str) -> str:
    """Return a key, which may be empty, if it can be sent.

    Raises:
        WrongKey: no HTTP header can hold it. Unlike the HTTP library's message, ours does not show it.
    """
    if fault := _fault(key):
        raise WrongKey(401, f"the key has {fault}")
    return key


def checked_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return headers that can be sent.

    Raises:
        ValueError: a value cannot.
    """
    for name, value in headers.items():
        if fault := _fault(value):
            raise ValueError(f"{name}: {value!r} has {fault}")
    return dict(headers)


def _fault(value: str) -> str:
    if "\n" in value or "\r" in value:
        fault = "a line break"
    elif value != value.strip():
        fault = "a space at its beginning or end"
    elif not (value.isascii() and value.isprintable()):
        fault = "a character that is not printable ASCII"
    else:
        return ""
    return f"{fault}, which cannot be sent in an HTTP header: remove it"
