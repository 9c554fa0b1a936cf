"""The wording of each tag in sentences: a clause, a noun, the kind of place it belongs to, and more general tags."""

import csv
from functools import cache
from pathlib import Path
from typing import Final, Literal

import msgspec

#: An event can be counted, a texture lasts, a voice is a person speaking.
Kind = Literal["event", "texture", "voice"]

PLACES: Final = {
    "air": "Near aircraft",
    "alarm": "A place where an alarm sounds",
    "animals": "A place with animals",
    "bathroom": "Indoors, in a bathroom",
    "church": "Near a church",
    "crowd": "Among many people",
    "danger": "A place where there may be danger",
    "desk": "Indoors, at a desk",
    "farm": "On a farm or near one",
    "fire": "By a fire",
    "garden": "Outdoors, where somebody works with a machine",
    "home": "Indoors, around the house",
    "kitchen": "Indoors, in a kitchen",
    "music": "A place with music",
    "nature": "Outdoors, in nature",
    "person": "Close to a person",
    "rail": "Near a railway",
    "shore": "Outdoors, by the water",
    "speech": "Close to people who speak",
    "street": "Outdoors, near traffic",
    "unknown": "A place that its sounds do not tell",
    "water": "Near running water",
    "weather": "Outdoors, in wind or rain",
    "works": "A workshop or a building site",
}


class Phrase(msgspec.Struct, frozen=True):
    """The wording of a tag."""

    tag: str
    kind: Kind
    #: States that it happens: "a dog barks".
    clause: str
    #: The name after "over" or "mostly": "a barking dog".
    noun: str
    #: A key of PLACES.
    place: str
    #: More general tags that are not mentioned besides this one: a siren besides an ambulance's siren.
    general: tuple[str, ...] = ()


@cache
def table() -> dict[str, Phrase]:
    """Return the phrases in phrases.csv, by tag."""
    with Path(__file__).with_name("phrases.csv").open(encoding="utf-8", newline="") as file:
        rows = [{**row, "general": tuple(filter(None, row["general"].split("|")))} for row in csv.DictReader(file)]
    return {phrase.tag: phrase for phrase in msgspec.convert(rows, list[Phrase])}


def phrase(tag: str) -> Phrase:
    """Return the phrase of a tag, or make one from its name."""
    row = table().get(tag)
    if row is not None:
        return row
    name = " ".join(tag.replace("_", " ").split()).lower() or "something"
    if name.endswith(" speech"):
        return Phrase(tag, "voice", "somebody speaks", name, "speech", ("Speech",))
    return Phrase(tag, "event", f"{name} is heard", name, "unknown")
