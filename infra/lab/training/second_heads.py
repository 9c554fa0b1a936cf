"""Makes `infra/models/yamnet_ced`, YAMNet with CED-tiny: heads of the second model, its gate, points for both.

    python -m infra.lab.training.second_heads CRATE --data DATA --out DIR

CRATE is the file that `infra.lab.converters.convert_ced` names. The bundle keeps the first model as it ships. Contexts
of streams (the last two seconds) and of recordings (blocks of five) have separate heads and points. A head is a
logistic regression on the embedding of a context. It separates the tag's recordings from all recordings, including
readings, in which the tag is a fault. Both sides have equal weight, and so have all recordings of a side.

Points follow `infra.lab.evaluation.calibration`, on scores by heads of four folds, each learnt without the recordings
that it scores. For the figures, each half of the recordings is scored with heads and points of the other. The five
heads of the first model are crossed in the same way. The same input gives the same bytes.
"""

import hashlib
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import onnxruntime

from infra import models
from infra.lab.converters import audioset, convert_ced
from infra.lab.converters.recipes import RECIPES
from infra.lab.evaluation import calibration, recordings, report, scenes
from infra.lab.evaluation.metrics import any_by_recording
from infra.lab.evaluation.recordings import Recording
from infra.lab.script import parser, run
from infra.lab.training import attribution, default_heads
from infra.lab.training.added_tag import write_heads
from infra.lab.training.heard import HeardRecordings, hear, join_heard, tag_logits
from infra.models import manifests
from infra.teaching import heads
from infra.teaching.operating_points import Bools, Doubles
from streams.models import runtime
from streams.models.manifest import Context, Graph, Heads, LogMel, Manifest, Output, SecondModel, SecondTag
from streams.models.protocol import Floats, SoundEngine
from streams.models.sound_engine import OnnxSoundEngine

NAME: Final = "yamnet-ced"
GRAPH: Final = "second.onnx"
CED: Final = RECIPES["ced"]
#: Frames, milliseconds between contexts, and heads file, for streams and for recordings.
CONTEXTS: Final = ((192, 1000, "stream_heads.npy"), (496, 5000, "recording_heads.npy"))
#: A tag with fewer recordings gets no head.
FEWEST: Final = 3
#: Weight of the second model. With 0.6, scenes have more hits and more false events.
WEIGHT: Final = 0.5
#: Candidate gates, ascending. The chosen gate is the last one that finds as many sounds as no gate.
GATES: Final = (0.0, 0.01, 0.02, 0.03, 0.04, 0.05, 0.07, 0.1)
#: Stream figures in the manifest, beside those of recordings.
STREAM: Final = (
    "clip_recall",
    "false_events_per_minute",
    "false_windows",
    "scenes_sound_recall",
    "scenes_false_events_per_minute",
    "scenes_false_windows",
    "speech_false_events_per_minute",
)
NOTICE: Final = f"""\

CED-tiny
Licensed under the Apache License, Version 2.0; the text is the file LICENSE at the root of this project.

{GRAPH} was converted by infra/lab/converters/convert_ced.py from models/tiny.onnx in the crate soundevents 0.5.0, whose
THIRD_PARTY_NOTICES.md names the origin: CED-tiny of https://github.com/RicherMans/CED, Apache-2.0 (H. Dinkel, Y. Wang,
Z. Yan, J. Zhang, Y. Wang, "CED: Consistent ensemble distillation for audio tagging", https://arxiv.org/abs/2308.11957).
Changes: the front end was left out (the graph takes log-mel frames), the embedding is an output, weights of products of
matrices have 7 bits. Class names are those of AudioSet (https://research.google.com/audioset/), CC BY 4.0.

The authors of the recordings that heads were learnt from are in the file ATTRIBUTION.
"""
CREDIT: Final = f"""\
Heads of YAMNet and of CED-tiny

The .npy files hold heads, weights of logistic regressions, that infra/lab/training/default_heads.py and second_heads.py
learned from the recordings named below; no recording can be made of them again.
{attribution.SOURCES}"""


#: Half of the material by kind, in one way of looking.
HeardHalf = Mapping[str, HeardRecordings]


class CrossedHalves(msgspec.Struct, frozen=True):
    """Two halves, with tag logits of contexts by heads that did not learn from them, float32[contexts, tags]."""

    halves: tuple[HeardHalf, ...]
    #: Logits that each half's points are set on, by heads of folds within the half.
    within: tuple[Floats, ...]
    #: Logits of each half's material, by heads of the other half.
    other: tuple[dict[str, Floats], ...]

    def figures(self, gate: float) -> dict[str, float]:
        """Return the figures of both models together."""
        points = [
            calibration.calibrate_bundled(learnt_from(half).at(logits, WEIGHT, gate)).points
            for half, logits in zip(self.halves, self.within, strict=True)
        ]
        parts = [
            {kind: half[kind].at(of_kind, WEIGHT, gate) for kind, of_kind in logits.items()}
            for half, logits in zip(self.halves, self.other, strict=True)
        ]
        return report.crossed_figures(parts, points[::-1])


def learnt_from(half: HeardHalf) -> HeardRecordings:
    return join_heard([half["clips"], half["speech"]])


def learn(heard: HeardRecordings, tags: Sequence[SecondTag], learnt: Bools) -> Floats:
    """Return the heads, float32[heads, dimension + 1], learnt from some recordings: bool[recordings].

    The head of a tag without recordings is NaN.
    """
    truth, recording, audible = heard.scored.truth, heard.context_recording, heard.context_audible
    has, allowed = (any_by_recording(which, truth.recording) for which in (truth.true, truth.allowed))
    silent = ~any_by_recording(audible, recording)
    used = learnt[recording] & (audible | silent[recording])
    recording = recording[used]
    share = 1.0 / np.bincount(recording)[recording]
    embeddings = heard.embeddings[used].astype(np.float64)
    mean, deviation = embeddings.mean(axis=0), embeddings.std(axis=0)
    standard = (embeddings - mean) / deviation
    rows = []
    for column in [column for column, tag in enumerate(tags) if tag.head is not None]:
        positive, negative = has[recording, column], ~allowed[recording, column]
        if not positive.any():
            rows.append(np.full(embeddings.shape[1] + 1, np.nan))
            continue
        weights = sum(heads.SIDE * share * side / (share @ side) for side in (positive, negative))
        head = heads.regress(standard, positive.astype(np.float64), weights)
        direction = head[:-1] / deviation
        rows.append(np.append(direction, head[-1] - mean @ direction))
    return np.stack(rows).astype(np.float32)


def logits_of(heard: HeardRecordings, tags: Sequence[SecondTag], rows: Floats) -> Floats:
    """Return the second model's logit of each tag, float32[contexts, tags], with these heads."""
    return tag_logits(heard, tags, heard.embeddings @ rows[:, :-1].T + rows[:, -1])


def held_out_logits(heard: HeardRecordings, tags: Sequence[SecondTag]) -> Floats:
    """Return the logit of each tag, float32[contexts, tags], by heads of four folds with no common sources."""
    given = heard.scored.recordings
    found = np.zeros((len(heard.classes), len(tags)), np.float32)
    kinds = [[one for one in given if (one.label == "speech") == speech] for speech in (False, True)]
    for quarters in zip(*map(_quarters, kinds), strict=True):
        names = {one.name for quarter in quarters for one in quarter}
        out = np.array([one.name in names for one in given])
        contexts = out[heard.context_recording]
        found[contexts] = logits_of(heard, tags, learn(heard, tags, ~out))[contexts]
    return found


def _quarters(given: Sequence[Recording]) -> list[list[Recording]]:
    return [quarter for half in recordings.halves(given) for quarter in recordings.halves(half)]


def cross(halves: Sequence[HeardHalf], tags: Sequence[SecondTag]) -> CrossedHalves:
    material = [learnt_from(half) for half in halves]
    rows = [learn(heard, tags, np.ones(len(heard.scored.recordings), np.bool_)) for heard in material]
    return CrossedHalves(
        halves=tuple(halves),
        within=tuple(held_out_logits(heard, tags) for heard in material),
        other=tuple(
            {kind: logits_of(half[kind], tags, other) for kind in report.MATERIAL}
            for half, other in zip(halves, reversed(rows), strict=True)
        ),
    )


def choose_gate(ways: Sequence[Callable[[float], dict[str, float]]]) -> float:
    """Return the last of `GATES` that loses no sound; `ways` return the figures of a way of looking at a gate."""

    def found(gate: float) -> Doubles:
        figures = [way(gate) for way in ways]
        return np.array([one[name] for one in figures for name in ("clip_recall", "scenes_sound_recall")])

    every, chosen = found(GATES[0]), GATES[0]
    for gate in GATES[1:]:
        if (found(gate) < every).any():
            break
        chosen = gate
    return chosen


def second_tags(tags: int, clips: Sequence[int]) -> tuple[SecondTag, ...]:
    """Return the second model's scoring of each tag; `clips` is the number of recordings of each."""
    _, of_audioset = audioset.classes_and_tags()
    names = [tag.name for tag in of_audioset[:tags]]
    learnt = [name != "Speech" and count >= FEWEST for name, count in zip(names, clips, strict=True)]
    rows = np.cumsum(learnt) - 1
    return tuple(
        SecondTag(tag.classes, int(row) if has_head else None)
        for tag, row, has_head in zip(of_audioset[:tags], rows, learnt, strict=True)
    )


def second_model(graph: bytes, tags: Sequence[SecondTag]) -> SecondModel:
    """Return the second model without heads, at points of one half, where levels are exact."""
    assert isinstance(CED.input, LogMel)
    stream, recording = (Context(frames, hop, Heads(file, ""), (0.5,) * len(tags)) for frames, hop, file in CONTEXTS)
    return SecondModel(
        name="ced-tiny",
        version="1",
        licence=CED.licence,
        source=CED.source,
        graph=Graph(GRAPH, hashlib.sha256(graph).hexdigest()),
        input=msgspec.structs.replace(CED.input, frames=recording.frames),
        output=Output(*convert_ced.OUTPUTS),
        classes=convert_ced.CLASSES,
        tags=tuple(tags),
        weight=WEIGHT,
        gate=0.0,
        stream=stream,
        recording=recording,
        dimension=convert_ced.EMBEDDING,
    )


def hear_halves(
    judges: Sequence[SoundEngine],
    session: onnxruntime.InferenceSession,
    second: SecondModel,
    data: Path,
    recording: bool,
) -> list[HeardHalf]:
    """Run both models on each half, as streams or as recordings.

    Each half uses the first model trained on the other half.
    """
    return [
        {
            "clips": hear(judge, session, second, clips, recording),
            "scenes": hear(judge, session, second, scenes.build_scenes(clips, speech), recording),
            "speech": hear(judge, session, second, speech, recording),
        }
        for judge, (clips, speech) in zip(judges, report.halves(data), strict=True)
    ]


def make(base: Path, graph: bytes, second: SecondModel, ways: Sequence[Sequence[HeardHalf]], out: Path) -> Manifest:
    """Choose gate, heads and points, write them with both graphs into `out`, and return the manifest with figures."""
    out.mkdir(parents=True, exist_ok=True)
    crossed = [cross(halves, second.tags) for halves in ways]
    gate = choose_gate([way.figures for way in crossed])
    found = []
    for halves, context in zip(ways, (second.stream, second.recording), strict=True):
        heard = join_heard([learnt_from(half) for half in halves])
        rows = learn(heard, second.tags, np.ones(len(heard.scored.recordings), np.bool_))
        learnt = write_heads(out / context.heads.file, rows)
        scored = heard.at(held_out_logits(heard, second.tags), WEIGHT, gate)
        found.append((msgspec.structs.replace(context, heads=learnt), calibration.calibrate_bundled(scored)))
    (stream, of_streams), (recording, of_recordings) = found
    first = OnnxSoundEngine(base).manifest
    both = msgspec.structs.replace(second, gate=gate, stream=stream, recording=recording)
    in_blocks, in_streams = (way.figures(gate) for way in reversed(crossed))
    manifest = msgspec.structs.replace(
        calibration.with_points(msgspec.structs.replace(first, second=both), of_recordings, of_streams),
        name=NAME,
        figures=in_blocks | {f"stream_{name}": in_streams[name] for name in STREAM},
    )
    (out / GRAPH).write_bytes(graph)
    for name in (first.graph.file, first.heads.file if first.heads else None):
        if name is not None:
            shutil.copyfile(base / name, out / name)
    manifests.write(out, manifest)
    return manifest


def main() -> None:
    options = parser(__doc__, "crate", "--data", "--out").parse_args()
    base = models.directory(models.YAMNET)
    graph = convert_ced.convert(options.crate)
    first = OnnxSoundEngine(base)
    material = default_heads.embed_clips(first, options.data)
    judges = default_heads.held_out_judges(base, first.manifest, material, options.data)
    second = second_model(graph, second_tags(len(first.manifest.tags), [tag.clips for tag in first.manifest.tags]))
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / GRAPH).write_bytes(graph)
    session = runtime.open_session(options.out / GRAPH, second.graph.sha256)
    ways = [hear_halves(judges, session, second, options.data, recording) for recording in (False, True)]
    manifest = make(base, graph, second, ways, options.out)
    notice = (base / "NOTICE").read_text(encoding="utf-8") + NOTICE
    (options.out / "NOTICE").write_text(notice, encoding="utf-8")
    (options.out / "ATTRIBUTION").write_text(attribution.notice(material.clips, CREDIT), encoding="utf-8")
    for name, figure in manifest.figures.items():
        print(f"{name:42} {figure:.4f}")
    assert manifest.second is not None
    print(f"{manifest.model_id}: gate {manifest.second.gate}, {options.out}")


if __name__ == "__main__":
    run(main)
