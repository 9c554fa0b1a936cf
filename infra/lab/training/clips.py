"""The recordings that sed-mini is trained on, with their labels, folds, authors and licences."""

import zlib
from pathlib import Path
from typing import Final

import msgspec

from infra.lab.evaluation.recordings import read_audio, read_rows
from streams.models.protocol import Floats
from topics.errors import AudioError

RATE: Final = 16_000
FOLDS: Final = (1, 2, 3, 4)
#: Label of a recording, its tag and the tag's category, in the order of the model's classes.
KNOWN: Final = (
    ("speech", "Speech", "Human speech"),
    ("dog", "Dog_bark", "Animal"),
    ("rooster", "Rooster_crow", "Animal"),
    ("rain", "Rain", "Outdoor context"),
    ("sea_waves", "Sea_waves", "Outdoor context"),
    ("crackling_fire", "Fire_crackle", "Outdoor context"),
    ("crying_baby", "Baby_cry", "Human status"),
    ("sneezing", "Sneeze", "Human status"),
    ("clock_tick", "Clock_tick", "Home context"),
    ("helicopter", "Helicopter", "Outdoor context"),
    ("chainsaw", "Chainsaw", "Outdoor context"),
)
SOUND_COLUMNS: Final = ("file", "label", "fold", "esc10", "src", "author", "licence", "source_url")
SPEECH_COLUMNS: Final = ("file", "speaker", "licence")
LABELS: Final = tuple(label for label, _, _ in KNOWN)


class Clip(msgspec.Struct, frozen=True):
    """One recording; no tag may be reported on labels outside `KNOWN`."""

    path: Path
    label: str
    #: 1 to 4. Recordings of one source (one take, one reader) share a fold.
    fold: int
    author: str
    licence: str
    url: str

    @property
    def known(self) -> int | None:
        """Index of its class; None for other material."""
        return LABELS.index(self.label) if self.label in LABELS else None

    def samples(self) -> Floats:
        """Decode the recording: float32[n] at 16 kHz.

        Raises:
            AudioError: It does not decode, or has another rate; the message names the file.
        """
        try:
            pcm = read_audio(self.path)
        except AudioError as error:
            raise AudioError(f"{self.path.name}: {error}") from error
        if pcm.rate != RATE:
            raise AudioError(f"{self.path.name}: {pcm.rate} Hz, expected {RATE}")
        return pcm.samples


def read_clips(data: Path) -> tuple[Clip, ...]:
    """Return all recordings of `data`: sounds in the order of sound/clips.csv, then speech/utterances.csv.

    The ten classes keep the folds of ESC-10. All other material is in one fold of ESC-50, so a hash of its source
    distributes it over the four.

    Raises:
        BadRequest: A table is missing, or lacks a column or a value.
    """
    return (
        *(
            Clip(
                path=data / "sound" / f"{row['file']}.ogg",
                label=row["label"],
                fold=int(row["fold"]) if row["esc10"] == "1" else _fold(row["src"]),
                author=row["author"],
                licence=row["licence"],
                url=row["source_url"],
            )
            for row in read_rows(data / "sound" / "clips.csv", SOUND_COLUMNS)
        ),
        *(
            Clip(
                path=data / "speech" / f"{row['file']}.ogg",
                label="speech",
                fold=_fold(row["speaker"]),
                author=f"LibriSpeech reader {row['speaker']}",
                licence=row["licence"],
                url="https://www.openslr.org/12/",
            )
            for row in read_rows(data / "speech" / "utterances.csv", SPEECH_COLUMNS)
        ),
    )


def _fold(source: str) -> int:
    return FOLDS[zlib.crc32(source.encode()) % len(FOLDS)]
