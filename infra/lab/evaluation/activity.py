"""Evaluates voice activity detection: how well it separates speech from other sounds."""

import time
from collections.abc import Iterable
from typing import Final

import msgspec

from infra.lab.evaluation.recordings import Recording
from streams.audio.resample import resample
from streams.models.protocol import Floats
from streams.voice.activity import SileroDetector
from streams.voice.speech_segments import RATE

#: Labels of other human sounds, in which speech counts neither for nor against.
VOICES: Final = frozenset({"laughing", "crying_baby", "coughing", "sneezing", "breathing", "snoring"})


class ActivityFigures(msgspec.Struct, frozen=True):
    """Shares of time, 0..1, that are detected as speech."""

    #: Of readings, pauses included, and of sounds without a human voice.
    speech: float
    sounds: float
    speech_s: float
    sounds_s: float
    #: Seconds of one thread per second of audio.
    real_time: float


def evaluate_activity(activity: SileroDetector, recordings: Iterable[Recording]) -> ActivityFigures:
    """Evaluate voice activity detection on labelled recordings.

    Raises:
        AudioError: A recording does not decode.
        EngineError: The network failed.
        ValueError: There is no speech or no other sound.
    """
    active, length = {True: 0.0, False: 0.0}, {True: 0.0, False: 0.0}
    seconds = 0.0
    for recording in recordings:
        if recording.label in VOICES:
            continue
        samples = _at_rate(recording)
        begun = time.thread_time()
        segments = list(activity.segments([samples]))
        seconds += time.thread_time() - begun
        spoken = recording.label == "speech"
        active[spoken] += sum(segment.end_s - segment.start_s for segment in segments)
        length[spoken] += len(samples) / RATE
    if not all(length.values()):
        raise ValueError("voice activity is judged on speech and on other sounds")
    return ActivityFigures(
        speech=active[True] / length[True],
        sounds=active[False] / length[False],
        speech_s=length[True],
        sounds_s=length[False],
        real_time=seconds / sum(length.values()),
    )


def _at_rate(recording: Recording) -> Floats:
    pcm = recording.decode()
    return resample(pcm.samples, pcm.rate, RATE)
