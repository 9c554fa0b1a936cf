"""The fingerprint of the formats follows whatever a node of another version could misread."""

from typing import Any, get_args

import msgspec

from tests.examples import golden
from topics import catalog
from topics.formats import STORED, fingerprint


def _message(*fields: Any, **options: Any) -> Any:
    return msgspec.defstruct("Message", fields, array_like=True, **options)


def test_all_examples_are_of_types_that_count() -> None:
    counted = {kind for stored in STORED for kind in (get_args(stored) or (stored,))}
    for path in (path for topic in (*golden.READERS, catalog.CHANGELOG) for path in golden.examples(topic)):
        assert type(golden.read(path)) in counted, path


def test_fingerprint_follows_fields_and_not_words() -> None:
    message = _message(("a", int), ("b", str, ""))
    assert fingerprint(message) == fingerprint(_message(("a", int), ("b", str, ""), namespace={"__doc__": "Other."}))
    others = [
        _message(("a", int), ("b", str, ""), ("c", int, 0)),
        _message(("a", int)),
        _message(("b", str, ""), ("a", int, 0)),
        _message(("a", int), ("b", str, "x")),
        _message(("a", int), ("b", str)),
        _message(("a", int), ("b", str, ""), tag="m"),
    ]
    assert len({fingerprint(one) for one in (message, *others)}) == len(others) + 1
