"""The front end that all bundled sound models share."""

from typing import Final

from streams.models.manifest import LogMel

#: YAMNet's: 64 bands of 125 to 7500 Hz, 96 frames of 25 ms every 10 ms.
FRONT_END: Final = LogMel(
    sample_rate=16_000, frames=96, bands=64, window=400, hop=160, fft=512, low_hz=125.0, high_hz=7500.0, offset=0.001
)
