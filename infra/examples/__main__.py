"""Makes the recording: 4 s of ISO 8201's three-pulse pattern of fire alarms, as a 3.1 kHz sine at 16 kHz.

Each pulse is 0.5 s on and 0.5 s off, three times, then a pause.
"""

from typing import Final

import numpy as np
import soundfile

from infra.examples import RECORDING

RATE: Final = 16_000
SECONDS: Final = 4
PITCH_HZ: Final = 3_100

time = np.arange(RATE * SECONDS) / RATE
sounding = (np.mod(time, 1.0) < 0.5) & (time < 3.0)
soundfile.write(RECORDING, 0.3 * np.sin(2 * np.pi * PITCH_HZ * time) * sounding, RATE)
