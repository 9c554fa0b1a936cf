"""A zygote whose decoders misbehave like those of a hostile file; the file's sample rate selects the fault."""

import ctypes
import sys
import threading
from typing import BinaryIO, Final

from streams.audio import decode
from streams.audio.decode import BROKEN_LIMIT, MAX_FILE_S, AudioFile
from streams.audio.sources import DescriptorSource
from streams.processes.child import Deadlines
from streams.processes.deaths import DEADLY
from streams.workers.__main__ import main
from topics.media import Media

COMMAND: Final = (sys.executable, "-m", "tests.attacks.faulty_decoders")
CRASH: Final = 11_001
SPIN: Final = 11_002
HANG: Final = 11_003
SWELL: Final = 11_004
FAULTS: Final = (CRASH, SPIN, HANG, SWELL)
#: The error text of each fault.
SENTENCES: Final[dict[int | None, str]] = {CRASH: DEADLY, SPIN: BROKEN_LIMIT, HANG: DEADLY, SWELL: BROKEN_LIMIT}
DEADLINES: Final = Deadlines(processor=0.2, idle=0.2, wall=30)

_open_file = decode.open_file


def open_file(
    source: BinaryIO | DescriptorSource,
    media: Media,
    longest_s: int = MAX_FILE_S,
    block_samples: int | None = None,
    *,
    is_chunk: bool = False,
) -> AudioFile:
    """Open a file, unless its sample rate selects a fault."""
    audio = _open_file(source, media, longest_s, block_samples, is_chunk=is_chunk)
    if audio.rate == CRASH:
        ctypes.string_at(0)
    while audio.rate == SPIN:
        pass
    if audio.rate == HANG:
        lock = threading.Lock()
        lock.acquire()
        lock.acquire()
    held = []
    while audio.rate == SWELL:
        held.append(bytearray(1 << 20))
    return audio


if __name__ == "__main__":
    # The zygote warms up with its own files, which have other rates.
    decode.open_file = open_file
    main()
