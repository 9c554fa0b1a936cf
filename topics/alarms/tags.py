"""The names in a rule: tags of a model, own sounds of a project, and classes, which stand for several tags."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from difflib import get_close_matches

from topics.errors import BadRequest

#: The tags of each class of a model.
Classes = Mapping[str, Sequence[str]]


def classes_of(categories: Iterable[tuple[str, str]]) -> Classes:
    """Return the classes of a model's tags, given as (tag, category); a tag of the same name hides a class."""
    pairs = list(categories)
    names = {name for name, _ in pairs}
    found: dict[str, list[str]] = {}
    for name, category in pairs:
        if category not in names:
            found.setdefault(category, []).append(name)
    return found


def check_tags(names: Iterable[str], tags: Collection[str], classes: Classes, own: Collection[str] = ()) -> None:
    """Check the names of a rule that is about to be stored.

    Raises:
        BadRequest: one is neither a tag, nor an own sound of the project, nor a class.
    """
    for name in names:
        if name not in tags and name not in own and name not in classes:
            (nearest,) = get_close_matches(name[:60], [*tags, *own, *classes], 1, 0.0)
            raise BadRequest(f"tags: {name[:60]!r} is no tag, own sound or class; the nearest one is {nearest!r}")


def expanded(names: Iterable[str], tags: Collection[str], classes: Classes) -> tuple[str, ...]:
    """Return the tags of a model that some names stand for; those that the model lacks are left out."""
    found = (one for name in names for one in ((name,) if name in tags else classes.get(name, ())))
    return tuple(dict.fromkeys(found))
