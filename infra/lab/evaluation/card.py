"""The model card: the figures in the manifests of the bundled models, as markdown."""

from collections.abc import Sequence
from typing import Final

from infra.models.manifests import AnyManifest
from infra.models.speech_manifest import SpeechManifest
from streams.models.manifest import Manifest
from streams.voice.overlap_manifest import OverlapManifest
from streams.voice.speaker_manifest import SpeakerManifest

#: Titles of figures, in order; untitled figures follow by name.
SOUND: Final = {
    "ten_class_clip_accuracy": "accuracy on ten classes (ESC-10), by the mean score of a clip",
    "clip_recall": "clips whose sound is found",
    "clip_recall_median": "clips whose sound is found, median of three windows",
    "window_recall": "windows whose sound is found",
    "window_recall_median": "windows whose sound is found, median of three",
    "false_events_per_minute": "false events a minute, clips of all sounds",
    "false_events_per_minute_median": "false events a minute, clips of all sounds, median of three",
    "false_windows": "windows with a false tag, clips of all sounds",
    "false_windows_median": "windows with a false tag, clips of all sounds, median of three",
    "scenes_sound_recall": "sounds found in long everyday scenes",
    "scenes_false_events_per_minute": "false events a minute, long everyday scenes",
    "scenes_false_events_per_minute_median": "false events a minute, scenes, median of three",
    "scenes_false_windows": "windows with a false tag, long everyday scenes",
    "scenes_false_windows_median": "windows with a false tag, scenes, median of three",
    "speech_false_events_per_minute": "false events a minute, clean speech",
    "speech_false_events_per_minute_median": "false events a minute, clean speech, median of three",
    "speech_false_windows": "windows with a false tag, clean speech",
    "speech_false_windows_median": "windows with a false tag, clean speech, median of three",
    "known_clip_recall": "clips found, sounds it was trained for",
    "known_window_recall": "windows found, its sounds",
    "known_false_events_per_minute": "false events a minute, its sounds",
    "known_false_windows": "windows with a false tag, its sounds",
    "other_false_events_per_minute": "false events a minute, clips of other sounds",
    "other_false_windows": "windows with a false tag, clips of other sounds",
    "certain_events": "events of probability 0.9 and more that are right, clips and scenes",
    "stream_clip_recall": "streams: clips whose sound is found",
    "stream_false_events_per_minute": "streams: false events a minute, clips of all sounds",
    "stream_false_windows": "streams: windows with a false tag, clips of all sounds",
    "stream_scenes_sound_recall": "streams: sounds found in scenes",
    "stream_scenes_false_events_per_minute": "streams: false events a minute, scenes",
    "stream_scenes_false_windows": "streams: windows with a false tag, scenes",
    "stream_speech_false_events_per_minute": "streams: false events a minute, clean speech",
    "window_ms_ratio": "time per window, `yamnet` = 1",
    "stream_window_ms_ratio": "streams: time per window, `yamnet` = 1",
}
VOICE: Final = {
    "eer_4s": "equal error rate, pieces of 4 s",
    "eer_whole": "equal error rate, whole utterances",
    "eer_4s_cross": "equal error rate, 4 s, the second through another channel",
    "eer_whole_cross": "equal error rate, whole utterances, the second through another channel",
    "eer_4s_room": "equal error rate, 4 s, the second in a room",
    "eer_4s_quiet": "equal error rate, 4 s, the second 20 dB softer, with noise 15 dB below",
    "eer_4s_mp3": "equal error rate, 4 s, the second through MP3",
    "eer_4s_telephone": "equal error rate, 4 s, the second through a telephone",
    "eer_4s_room_telephone": "equal error rate, 4 s, the second in a room and through a telephone",
    "identified_10": "one of ten registered speakers named right, from 4 s, three samples of 2.5 s",
    "identified_10_open": "one of ten named right, at the threshold",
    "refused_10": "strangers not named, at the threshold",
    "eer_open_10": "equal error rate, one of ten missed or a stranger named",
    "identified_10_cross": "one of ten named right, 4 s through another channel",
    "identified_10_open_cross": "one of ten named right, at the threshold, through another channel",
    "refused_10_cross": "strangers not named, at the threshold, through another channel",
    "diarization_error": "diarization error, conversations built of readings, number of speakers unknown",
    "diarization_error_collar": "diarization error, without 0.25 s around turn ends",
    "diarization_error_channel": "diarization error, conversations in rooms with noise",
    "diarization_error_meetings": "diarization error, meetings, turns as users get them, without 0.25 s around ends",
}
OVERLAP: Final = {
    "overlap_found": "overlap that is marked, talks of readers who often overlap",
    "overlap_precision": "marked time in which two speak",
    "diarization_error_talks": "diarization error of these talks, turns only",
    "diarization_error_talks_marked": "the same, with the second voice where marked",
    "diarization_error_conversations": "diarization error, readers who seldom overlap, turns only",
    "diarization_error_conversations_marked": "the same, with the second voice",
    "diarization_error_calls": "diarization error, the same through a telephone, turns only",
    "diarization_error_calls_marked": "the same, with the second voice",
    "diarization_error_meetings": "diarization error, meetings, turns as users get them, without 0.25 s around ends",
    "diarization_error_meetings_marked": "the same, with the second voice",
}
SPEECH: Final = {
    "wer": "words wrong, readings of 2 to 15 s",
    "wer_10db": "words wrong, noise 10 dB below",
    "wer_0db": "words wrong, noise as loud as the speech",
    "wer_long": "words wrong, readings of a minute and more",
    "wer_long_15s": "words wrong, the same in pieces of at most 15 s",
    "invented": "clips without speech in which it hears words",
}
#: Kinds of models, the titles of their tables, and their figures.
KINDS: Final = (
    (Manifest, "sound events", SOUND),
    (SpeakerManifest, "voices", VOICE),
    (OverlapManifest, "overlapping speech", OVERLAP),
    (SpeechManifest, "words", SPEECH),
)
#: Name suffixes of figures that are not shares.
NUMBERS: Final = ("_per_minute", "_per_minute_median", "_ratio", "_ms")
#: Marks names of figures of one fold, which the card omits.
FOLD: Final = "_fold_"
#: Figures omitted to keep the card short.
LEFT_OUT: Final = frozenset(
    {
        "known_window_recall",
        "known_false_windows",
        "speech_clip_recall",
        "speech_window_recall",
        "false_windows_median",
        "window_recall_median",
        "scenes_false_events_per_minute_median",
        "speech_false_events_per_minute_median",
        "speech_false_windows",
        "speech_false_windows_median",
    }
)


def model_card(manifests: Sequence[AnyManifest]) -> str:
    """Return markdown tables of sound, voice, overlap and speech models; kinds without a model are omitted."""
    tables = []
    for kind, title, names in KINDS:
        if chosen := [manifest for manifest in manifests if isinstance(manifest, kind)]:
            points = [_points(sound)] if (sound := [one for one in chosen if isinstance(one, Manifest)]) else []
            tables.append("\n".join([*_head(title, chosen), *points, *_rows(names, chosen)]))
    return "\n\n".join(tables)


def format_figure(name: str, value: float) -> str:
    """Return a figure as text: shares as percentages."""
    return f"{value:.3g}" if name.endswith(NUMBERS) else f"{100.0 * value:.1f} %"


def figure_title(name: str) -> str:
    return next((names[name] for _, _, names in KINDS if name in names), name.replace("_", " "))


def _head(kind: str, manifests: Sequence[AnyManifest]) -> list[str]:
    return [
        _row(kind, [f"`{manifest.name}`" for manifest in manifests]),
        _row("---", ["---:"] * len(manifests)),
        _row("licence", [manifest.licence for manifest in manifests]),
    ]


def _points(manifests: Sequence[Manifest]) -> str:
    counts = [(len(manifest.tags), sum(tag.clips > 0 for tag in manifest.tags)) for manifest in manifests]
    return _row(
        "tags, and those with a point set on clips of the sound", [f"{tags}, {rests}" for tags, rests in counts]
    )


def _rows(names: dict[str, str], manifests: Sequence[AnyManifest]) -> list[str]:
    figure_names = {name for manifest in manifests for name in manifest.figures if FOLD not in name}
    others = sorted(figure_names - names.keys())
    return [
        _row(
            figure_title(name),
            [format_figure(name, made.figures[name]) if name in made.figures else "" for made in manifests],
        )
        for name in (*names, *others)
        if name not in LEFT_OUT and any(name in manifest.figures for manifest in manifests)
    ]


def _row(first: str, others: Sequence[str]) -> str:
    return f"| {' | '.join((first, *others))} |"
