"""Pictures of recordings as the edge sees them: a spectrogram and a waveform, each of any stretch."""

from typing import Final, Protocol

#: Rows of a spectrogram: frequencies up to 8 kHz, evenly spaced as ears hear them.
BANDS: Final = 64
#: Rate of the samples, and samples between neighbouring peaks.
RATE: Final = 16_000
STEP: Final = 80


class Picture(Protocol):
    """The picture of one recording."""

    @property
    def seconds(self) -> float: ...

    async def spectrogram(self, start_s: float, end_s: float, columns: int) -> bytes:
        """Return bytes[BANDS, columns] of a stretch: rows, the highest frequency first.

        Each is the loudest in its part of the stretch, 0 for -100 dB or less, 255 for full scale; 0 after the end.
        """

    async def waveform(self, first: int, count: int, steps: int) -> list[int]:
        """Return the least and greatest sample, -127 to 127, of at most `count` parts of `steps` steps each.

        The first part begins with step `first`; there are none after the end of the recording.
        """
