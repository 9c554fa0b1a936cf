"""Compares ways of making a job's 2 s windows from patch scores: short sounds found, and false alarms.

    python -m infra.lab.evaluation.job_windows --data DIR

Short sounds are the loudest stretches of labelled clips, mixed at any time into ten seconds of other sounds. False
alarms are counted on the clips, on the long scenes made of them, on clean speech, and on noise. Each patch is scored
once, every half second, as in sessions; a job's window combines these scores. Worth is the share found, minus the price
(`calibration.CalibrationRule.cost`) for each false event a minute and tag.
"""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
from rich.console import Console
from rich.table import Table

from infra import models
from infra.lab.evaluation import labels, scenes
from infra.lab.evaluation.calibration import DEFAULT
from infra.lab.evaluation.metrics import Truth, figures
from infra.lab.evaluation.recordings import Recording, Span, sound_clips, speech_utterances
from infra.lab.evaluation.sound import ScoredRecordings, score_recordings
from infra.teaching.operating_points import Bools, Doubles, Indices
from streams.audio.analysis import WindowJoiner
from streams.audio.decode import DecodedAudio
from streams.models.protocol import Floats
from streams.models.sound_engine import OnnxSoundEngine
from topics.scores import STEP, ZERO

RATE: Final = 16_000
SEED: Final = 1419
#: Length of a recording with a short sound, and of the sound.
SECONDS: Final = 10
EVENT_S: Final = 0.5
#: Level of the sound above the other sounds, dB.
OVER_DB: Final = (10.0, 20.0)


def _labels(text: str) -> tuple[str, ...]:
    return tuple(text.split())


#: Labels of short sounds, and of long sounds that may lie under them.
SHORT: Final = _labels(
    "dog rooster cat crow hen cow pig frog sheep crying_baby coughing sneezing laughing door_wood_knock "
    "glass_breaking car_horn clock_alarm footsteps church_bells siren"
)
STEADY: Final = _labels(
    "rain sea_waves crackling_fire wind washing_machine vacuum_cleaner engine train airplane chirping_birds crickets "
    "insects keyboard_typing clock_tick water_drops brushing_teeth breathing pouring_water hand_saw"
)
#: Minutes of noise: white, pink and brown.
NOISE_MINUTES: Final = 2

#: Combines patch scores, float64[patches, tags], half a second apart, into window scores, float64[tags].
Aggregate = Callable[[Doubles], Doubles]


def _of_two(function: Callable[..., Doubles]) -> Aggregate:
    return lambda patches: function(patches[::2], axis=0)


def _raised(steps: int) -> Aggregate:
    """Return the maximum of the two patches, minus some steps of a logit."""

    def aggregate(patches: Doubles) -> Doubles:
        best = np.clip(patches[::2].max(axis=0), 1e-6, 1 - 1e-6)
        lowered: Doubles = 1.0 / (1.0 + np.exp(steps * STEP) * (1.0 - best) / best)
        return lowered

    return aggregate


AGGREGATES: Final[dict[str, Aggregate]] = {
    "mean of the two patches": _of_two(np.mean),
    "mean of three, half a second apart": lambda patches: patches.mean(axis=0),
    "maximum of the two": _of_two(np.max),
    "maximum of the two, less 0.35 logit": _raised(5),
    "maximum of the two, less 0.7 logit": _raised(10),
    "maximum of three, half a second apart": lambda patches: patches.max(axis=0),
}
#: What jobs do.
JOINED: Final = "maximum of the two that begin in it"


class Material(msgspec.Struct, frozen=True):
    """Scored recordings of one kind."""

    name: str
    scored: ScoredRecordings


class Line(msgspec.Struct, frozen=True):
    """One way of making windows, on one kind of material; shares are 0..1."""

    aggregate: str
    material: str
    #: Share of short sounds; None for other material.
    found: float | None
    #: Share of recordings with a true tag in which one is reported.
    clips_found: float
    false_events_per_minute: float
    false_windows: float
    worth: float


def short_events(clips: Sequence[Recording]) -> list[Recording]:
    """Return a recording per clip: the loudest stretch of its short sound, mixed into others. Its span is the last."""
    random = np.random.default_rng(SEED)
    steady = [clip for clip in clips if clip.label in STEADY]
    return [_short_event(clip, steady, random) for clip in clips if clip.label in SHORT]


def _short_event(clip: Recording, steady: Sequence[Recording], random: np.random.Generator) -> Recording:
    under = [steady[int(number)] for number in random.choice(len(steady), SECONDS // 5, replace=False)]
    samples = np.concatenate([np.resize(_leveled(one.decode().samples, -35.0), 5 * RATE) for one in under])
    sound = _leveled(_loudest(clip.decode().samples), -35.0 + random.uniform(*OVER_DB))
    start = int(random.uniform(1.0, SECONDS - 2.0) * RATE)
    samples[start : start + len(sound)] += sound
    spans = [Span(one.spans[0].meaning, 5.0 * number, 5.0 * number + 5.0) for number, one in enumerate(under)]
    event = Span(clip.spans[0].meaning, start / RATE, (start + len(sound)) / RATE)
    return Recording(clip.name, clip.label, (*spans, event), DecodedAudio(RATE, samples), clip.source)


def _loudest(samples: Floats) -> Floats:
    """Return the loudest `EVENT_S`, faded in and out over 10 ms."""
    length = round(EVENT_S * RATE)
    power = np.concatenate(([0.0], np.cumsum(np.square(samples, dtype=np.float64))))
    first = int(np.argmax(power[length:] - power[:-length]))
    fade = np.minimum(1.0, np.minimum(np.arange(length), np.arange(length)[::-1]) / (RATE / 100)).astype(np.float32)
    loudest: Floats = samples[first : first + length] * fade
    return loudest


def _leveled(samples: Floats, level: float) -> Floats:
    """Return samples whose mean power is `level`, dB of full scale."""
    power = float(np.square(samples, dtype=np.float64).mean())
    return samples * np.float32(np.sqrt(10.0 ** (level / 10.0) / max(power, 1e-10)))


def noises() -> list[Recording]:
    """Return minutes of white, pink and brown noise, in which nothing should be reported."""
    random = np.random.default_rng(SEED)
    length = NOISE_MINUTES * 60 * RATE
    frequency = np.fft.rfftfreq(length, 1 / RATE)
    frequency[0] = frequency[1]
    recordings = []
    for name, slope in (("white", 0.0), ("pink", 0.5), ("brown", 1.0)):
        spectrum = np.fft.rfft(random.standard_normal(length)) / frequency**slope
        samples = _leveled(np.fft.irfft(spectrum, length).astype(np.float32), -30.0)
        recordings.append(Recording(name, name, (), DecodedAudio(RATE, samples), name))
    return recordings


def job_windows(scored: ScoredRecordings, aggregate: Aggregate | None) -> tuple[Bools, Truth]:
    """Return the reports of 2 s windows every second, bool[windows, tags], and their truth.

    Without an `aggregate`, windows are made as in jobs.
    """
    points = np.asarray(scored.manifest.points(scored.recording))
    truth, scores = scored.truth, scored.probabilities
    on, true, allowed, audible, recording = [], [], [], [], []
    for number in range(len(scored.recordings)):
        patches = np.flatnonzero(truth.recording == number)
        joiner = WindowJoiner()
        long = [*joiner.feed(scored.stored[patches].astype(np.float32)), *joiner.finish(whole=True)]
        for window, highest in enumerate(long):
            part = patches[2 * window : 2 * window + 3]
            on.append(highest >= ZERO if aggregate is None else aggregate(scores[part]) >= points)
            true.append(truth.true[part].any(axis=0))
            allowed.append(truth.allowed[part].any(axis=0))
            audible.append(truth.audible[part].any())
            recording.append(number)
    joined = Truth(np.array(recording), np.array(true), np.array(allowed), np.array(audible), truth.minutes)
    return np.array(on), joined


def share_found(scored: ScoredRecordings, on: Bools, recording: Indices, hop: float) -> float:
    """Return the share of short sounds, each the last span of its recording, that a window reports."""
    found = []
    for number, one in enumerate(scored.recordings):
        event, mine = one.spans[-1], np.flatnonzero(recording == number)
        expected, _ = labels.columns(event.meaning, scored.manifest.tags)
        if expected:
            starts = np.arange(len(mine)) * hop
            touching = mine[(starts < event.end) & (starts + (2.0 if hop == 1.0 else 1.0) > event.start)]
            found.append(bool(on[touching][:, expected].any()))
    return float(np.mean(found))


def measure(materials: Sequence[Material]) -> list[Line]:
    """Return a line per way of making windows and material; sessions come last, for comparison."""
    lines = []
    for name, aggregate in (*AGGREGATES.items(), (JOINED, None)):
        for material in materials:
            on, truth = job_windows(material.scored, aggregate)
            lines.append(_line(name, material, on, truth, 1.0))
    sessions = ((each, each.scored) for each in materials)
    lines += [_line("sessions: 1 s every half", each, scored.reported, scored.truth, 0.5) for each, scored in sessions]
    return lines


def _line(name: str, material: Material, on: Bools, truth: Truth, hop: float) -> Line:
    result = figures(on, truth)
    short = material.name == "short sounds"
    found = share_found(material.scored, on, truth.recording, hop) if short else None
    price = DEFAULT.cost * result.false_events_per_minute / on.shape[1]
    worth = (result.clip_recall if found is None else found) - price
    return Line(
        name, material.name, found, result.clip_recall, result.false_events_per_minute, result.false_windows, worth
    )


def materials(engine: OnnxSoundEngine, data: Path) -> list[Material]:
    """Return the scored recordings of a data directory.

    Raises:
        BadRequest: The recordings are missing.
        EngineError: The model failed.
    """
    clips, speech = sound_clips(data), speech_utterances(data)
    recordings = {
        "short sounds": short_events(clips),
        "clips": clips,
        "scenes": scenes.build_scenes(clips, speech),
        "speech": speech,
        "noise": noises(),
    }
    return [Material(name, score_recordings(engine, each)) for name, each in recordings.items()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="directory with `sound` and `speech`")
    parser.add_argument("--model", default=models.DEFAULT, help="a bundled model")
    given = parser.parse_args()
    lines = measure(materials(OnnxSoundEngine(models.directory(given.model)), given.data))
    table = Table("windows", "material", box=None, pad_edge=False)
    for column in ("short found", "clips found", "false/min", "false windows", "worth"):
        table.add_column(column, justify="right")
    for line in lines:
        table.add_row(
            line.aggregate,
            line.material,
            "" if line.found is None else f"{line.found:.1%}",
            "" if line.clips_found != line.clips_found else f"{line.clips_found:.1%}",
            f"{line.false_events_per_minute:.2f}",
            f"{line.false_windows:.1%}",
            "" if line.worth != line.worth else f"{line.worth:.3f}",
        )
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
