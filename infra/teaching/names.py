"""Names of sounds to teach."""

import re
from collections.abc import Collection
from typing import Final

from topics.errors import BadRequest

_NAME: Final = re.compile(r"[A-Z][A-Za-z0-9_]{0,39}")


def check_name(name: str, known: Collection[str], advice: str) -> None:
    """Check the name of a sound to teach.

    Raises:
        BadRequest: the name is invalid, or the model already knows this sound: then the message ends with the advice.
    """
    if not _NAME.fullmatch(name):
        raise BadRequest(
            f"{name[:64]!r} is not a name of a sound: a capital letter, then letters, digits and _, 40 at most"
        )
    if name in known:
        raise BadRequest(f"the model knows a sound {name} already: {advice}")
