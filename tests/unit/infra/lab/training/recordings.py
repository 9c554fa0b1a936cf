"""A folder of made-up recordings with the two tables that training reads."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import soundfile

from streams.models.protocol import Floats

SOUND = "file,fold,label,esc10,src,source_url,author,licence\n"
SPEECH = "file,part,speaker,sex,seconds,licence\n"


def bursts(seed: int) -> Floats:
    """Three seconds, of which the last second is noise and the rest silence."""
    samples = np.zeros(48_000, np.float32)
    samples[32_000:] = np.random.default_rng(seed).normal(0.0, 0.1, 16_000)
    return samples


def write(folder: Path, sound: list[str], speech: list[str]) -> Path:
    """Write tables with these rows, and a recording for each; return the folder."""
    for name, table, head, rows in (("sound", "clips", SOUND, sound), ("speech", "utterances", SPEECH, speech)):
        (folder / name).mkdir(parents=True)
        (folder / name / f"{table}.csv").write_text(head + "\n".join(rows), encoding="utf-8")
        for number, row in enumerate(rows):
            soundfile.write(folder / name / f"{row.split(',')[0]}.ogg", bursts(number), 16_000)
    return folder
