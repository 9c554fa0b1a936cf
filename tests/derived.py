"""Writes the part of the client that the service decides: options of jobs, and kinds of recordings.

The client is published alone, so it cannot import them: `python -m tests.derived` writes them, and a test compares.
"""

import json
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Final, get_args, get_type_hints

from msgspec.inspect import IntType, Metadata, NoneType, StrType, StructType, Type, UnionType, type_info

from topics import media
from topics.jobs.options import TOLD, Options

FILE: Final = Path(__file__).parent.parent / "app/client/earshot_client/_service_values.py"
CONTENT: Final = '''"""What jobs and recordings may be, as the service has it; `python -m tests.derived` writes this."""

from typing import Final

import msgspec


class JobOptions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Options of a job. The service refuses options that lack others they need, and options that ask for nothing.

    Options that are not given have the service's defaults: no services, and speakers separated if speech is analysed.

    Attributes:
{attributes}
    """

{fields}

#: Bytes at the beginning of a file that identify its content type.
HEAD: Final = {head}
#: How files of each content type begin: regular expressions in which a dot is any byte. The first that matches counts.
{beginnings}
#: What the service decodes.
KINDS: Final = "{kinds}"
'''


def content() -> str:
    """Return what the file should contain."""
    first, *kinds = [kind.name for kind in media.KINDS.values()]
    found = re.search(r"^BEGINNINGS: .*?^}$", Path(media.__file__).read_text(), re.DOTALL | re.MULTILINE)
    assert found is not None
    text = CONTENT.format(
        attributes="\n".join(_attributes()),
        fields="\n".join(_fields()),
        head=media.HEAD,
        beginnings=found[0],
        kinds=f"{', '.join((first, *kinds[:-1]))} or {kinds[-1]}",
    )
    formatter = [str(Path(sys.executable).with_name("ruff")), "format", "--stdin-filename", str(FILE), "-"]
    return subprocess.run(formatter, input=text, capture_output=True, text=True, check=True).stdout


def _attributes() -> Iterator[str]:
    described = type_info(Options)
    assert isinstance(described, StructType)
    for field in described.fields:
        text = TOLD[field.name].description.rstrip(".")
        match [one for one in _types(field.type) if not isinstance(one, NoneType)]:
            case [StrType(max_length=int(most))]:
                text += f"; at most {most} characters"
            case [IntType(gt=int(below), lt=int(above))]:
                text += f"; {below + 1} to {above - 1}"
        line = f"{field.name}: {text[0].lower()}{text[1:]}."
        yield textwrap.fill(line, 120, initial_indent=" " * 8, subsequent_indent=" " * 12)


def _types(kind: Type) -> Iterator[Type]:
    match kind:
        case Metadata():
            yield from _types(kind.type)
        case UnionType():
            yield from kind.types
        case _:
            yield kind


def _fields() -> Iterator[str]:
    for name, hint in get_type_hints(Options).items():
        kind = " | ".join("None" if one is type(None) else one.__name__ for one in get_args(hint) or (hint,))
        default = getattr(Options(), name)
        yield f"    {name}: {kind} = {json.dumps(default) if isinstance(default, str) else default}"


if __name__ == "__main__":
    FILE.write_text(content(), encoding="utf-8")
