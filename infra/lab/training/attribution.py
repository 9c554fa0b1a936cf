"""The notice naming the authors of the training recordings, made from the tables of recordings."""

from collections.abc import Sequence
from typing import Final

from infra.lab.training.clips import Clip
from topics.errors import EngineError

#: Licences allowed for training recordings, with the URLs of their texts.
LICENCES: Final = {
    "CC0": "https://creativecommons.org/publicdomain/zero/1.0/",
    "CC-BY": "https://creativecommons.org/licenses/by/3.0/",
    "CC-BY-4.0": "https://creativecommons.org/licenses/by/4.0/",
}
#: What the recordings are, for notices of what was learnt from them.
SOURCES: Final = """
The sounds are of ESC-50 (K. J. Piczak, https://github.com/karolpiczak/ESC-50), {cc0} clips in the public domain (CC0)
and {by} under Creative Commons Attribution (CC-BY), taken from freesound.org.
The speech is of LibriSpeech (V. Panayotov, G. Chen, D. Povey, S. Khudanpur, https://www.openslr.org/12/), CC-BY-4.0,
{speech} utterances read by volunteers of LibriVox.

"""
HEAD: Final = """\
sed-mini
Licensed under the Apache License, Version 2.0; the text is the file LICENSE at the root of this project.

The weights were trained from scratch by infra/lab/training/sed_mini.py on the recordings named below and on sounds made
by formula. YAMNet (Copyright 2019 The TensorFlow Authors, Apache-2.0; see ../yamnet/NOTICE) was the teacher: beside the
labels, the net learned what YAMNet says of the same patches. None of YAMNet's weights and no recording is in the file.

The sounds are of ESC-50 (K. J. Piczak, https://github.com/karolpiczak/ESC-50), {cc0} clips in the public domain (CC0)
and {by} under Creative Commons Attribution (CC-BY), taken from freesound.org. They were cut, resampled and mixed.
The speech is of LibriSpeech (V. Panayotov, G. Chen, D. Povey, S. Khudanpur, https://www.openslr.org/12/), CC-BY-4.0,
{speech} utterances read by volunteers of LibriVox, likewise changed.

"""


def notice(clips: Sequence[Clip], head: str = HEAD) -> str:
    """Return the notice: licences, the recordings of each CC-BY author in a block, and the readers.

    `head` is the text above them, with the numbers of recordings as {cc0}, {by} and {speech}.

    Raises:
        EngineError: A recording's licence is not in `LICENCES`.
    """
    for clip in clips:
        if clip.licence not in LICENCES:
            raise EngineError(f"{clip.path.name}: licence {clip.licence!r} is not one of {', '.join(LICENCES)}")
    sounds = [clip for clip in clips if clip.label != "speech"]
    attributed = [clip for clip in sounds if clip.licence == "CC-BY"]
    lines = [
        head.format(cc0=len(sounds) - len(attributed), by=len(attributed), speech=len(clips) - len(sounds)),
        *(f"{name}: {url}\n" for name, url in LICENCES.items()),
        "\nAuthors of the CC-BY clips and their recordings:\n",
    ]
    for author in sorted({clip.author for clip in attributed}, key=str.casefold):
        urls = sorted({clip.url for clip in attributed if clip.author == author})
        lines += [f"{author}\n", *(f"  {url}\n" for url in urls)]
    readers = sorted({clip.author.rpartition(" ")[2] for clip in clips if clip.label == "speech"}, key=int)
    lines.append("\nLibriSpeech readers:\n")
    lines += [f"  {' '.join(readers[at : at + 16])}\n" for at in range(0, len(readers), 16)]
    return "".join(lines)
