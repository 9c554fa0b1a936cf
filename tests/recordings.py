"""The test recordings, all in `tests/data`, whose README names their authors."""

import csv
from pathlib import Path
from typing import Final

DATA: Final = Path(__file__).parent / "data"
#: 5 s sounds with one label each, and utterances by one reader each; 16 kHz mono Ogg, with a table in each folder.
SOUND: Final = DATA / "sound"
SPEECH: Final = DATA / "speech"
#: The tables of all training data of the bundled models, without the recordings.
TRAINING: Final = DATA / "training"
#: The source of the bundled model.
YAMNET: Final = DATA / "models" / "yamnet.tflite"
YAMNET_CLASSES: Final = DATA / "models" / "yamnet_class_map.csv"

#: A siren throughout 5 s.
SIREN: Final = SOUND / "4-102871-A-42.ogg"
#: Two readers whom the bundled model tells apart within eight seconds.
TWO_READERS: Final = (SPEECH / "103-1240-0000.ogg", SPEECH / "1034-121119-0000.ogg")
#: Three readers whom the bundled model tells apart, 10 s or more of each.
ANNA: Final = SPEECH / "1116-132847-0000.ogg"
BERT: Final = SPEECH / "1723-141149-0000.ogg"
CLEO: Final = SPEECH / "2836-5354-0000.ogg"


def utterances() -> list[Path]:
    """Return the utterances of `SPEECH`, in the order of their names."""
    return sorted(SPEECH.glob("*.ogg"))


def clips(label: str) -> list[Path]:
    """Return the clips of `SOUND` with a label, in the order of the table."""
    return [SOUND / f"{row['file']}.ogg" for row in rows(SOUND / "clips.csv") if row["label"] == label]


def rows(table: Path) -> list[dict[str, str]]:
    with table.open(newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))
