"""The 527 classes of AudioSet and our tags for them, for models trained on AudioSet.

YAMNet has all classes except six, in the same order, so the names are the bundled manifest's with these six inserted.
The classes of a tag come from the table beside it, because some tags of the manifest have a head instead. The order is
that of AudioSet's class_labels_indices.csv (https://research.google.com/audioset/, CC BY 4.0).
"""

import csv
from typing import Final

from infra import models
from streams.models import manifest
from streams.models.manifest import ModelTag

#: The bundled model's tags and their classes.
TAGS: Final = "tags.csv"
#: Names by their index among the 527.
NOT_IN_YAMNET: Final = {
    1: "Male speech, man speaking",
    2: "Female speech, woman speaking",
    12: "Battle cry",
    32: "Male singing",
    33: "Female singing",
    277: "Funny music",
}
#: Tags whose classes YAMNet lacks.
MORE_TAGS: Final = {"Male_speech": "Male speech, man speaking", "Female_speech": "Female speech, woman speaking"}
#: The operating point of every tag until `earshot models calibrate` sets them for the model.
POINT: Final = 0.3


def classes_and_tags() -> tuple[tuple[str, ...], tuple[ModelTag, ...]]:
    """Return the display names in score order, and the tags, all with the same uncalibrated point."""
    bundled = manifest.read(models.directory(models.YAMNET))
    names = list(bundled.classes)
    for place, name in sorted(NOT_IN_YAMNET.items()):
        names.insert(place, name)
    index = {name: place for place, name in enumerate(names)}
    with (models.directory(models.YAMNET) / TAGS).open(newline="", encoding="utf-8") as lines:
        tags = [
            ModelTag(
                row["tag"], row["category"], tuple(index[name] for name in row["audioset_classes"].split("|")), POINT
            )
            for row in csv.DictReader(lines)
        ]
    category = next(tag.category for tag in bundled.tags if tag.name == "Speech")
    tags += [ModelTag(tag, category, (index[name],), POINT) for tag, name in MORE_TAGS.items()]
    return tuple(names), tuple(tags)
