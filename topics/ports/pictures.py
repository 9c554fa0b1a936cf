"""Pictures of recordings: spectrogram and waveform of any range."""

from typing import Final, Protocol

#: Rows of a spectrogram: frequencies up to 8 kHz on a perceptual scale.
BANDS: Final = 64
#: Sample rate in Hz, and samples between neighbouring peaks.
RATE: Final = 16_000
STEP: Final = 80


class Picture(Protocol):
    """The picture of one recording."""

    @property
    def seconds(self) -> float: ...

    async def spectrogram(self, start_s: float, end_s: float, columns: int) -> bytes:
        """Return bytes[BANDS, columns] of a range, the highest frequency first.

        Each byte is the maximum of its part of the range: 0 for -100 dB or less and after the end, 255 for full scale.
        """

    async def waveform(self, first: int, count: int, steps: int) -> list[int]:
        """Return the minimum and maximum sample (-127 to 127) of up to `count` parts of `steps` steps each.

        The first part begins with step `first`. There are no parts after the end of the recording.
        """
