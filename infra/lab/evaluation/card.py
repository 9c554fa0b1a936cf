"""The model card: the figures in the manifests of the bundled models, as markdown."""

from collections.abc import Sequence
from typing import Final

from infra.models.manifests import AnyManifest
from infra.models.speech_manifest import SpeechManifest
from streams.models.manifest import Manifest
from streams.voice.overlap_manifest import OverlapManifest
from streams.voice.speaker_manifest import SpeakerManifest

#: Titles of figures, in order; figures without one follow by name.
SOUND: Final = {
    "ten_class_clip_accuracy": "ten classes (ESC-10) named right, by the mean score of a clip",
    "clip_recall": "clips whose sound is found",
    "clip_recall_median": "clips whose sound is found, median of three windows",
    "window_recall": "windows whose sound is found",
    "window_recall_median": "windows whose sound is found, median of three",
    "false_events_per_minute": "false events a minute, clips of all sounds",
    "false_events_per_minute_median": "false events a minute, clips of all sounds, median of three",
    "false_windows": "windows with a false tag, clips of all sounds",
    "false_windows_median": "windows with a false tag, clips of all sounds, median of three",
    "scenes_sound_recall": "sounds in long everyday scenes that are found",
    "scenes_false_events_per_minute": "false events a minute, long everyday scenes",
    "scenes_false_events_per_minute_median": "false events a minute, scenes, median of three",
    "scenes_false_windows": "windows with a false tag, long everyday scenes",
    "scenes_false_windows_median": "windows with a false tag, scenes, median of three",
    "speech_false_events_per_minute": "false events a minute, clean speech",
    "speech_false_events_per_minute_median": "false events a minute, clean speech, median of three",
    "speech_false_windows": "windows with a false tag, clean speech",
    "speech_false_windows_median": "windows with a false tag, clean speech, median of three",
    "known_clip_recall": "clips of the sounds it was trained for, found",
    "known_window_recall": "windows of them, found",
    "known_false_events_per_minute": "false events a minute, in them",
    "known_false_windows": "windows with a false tag, in them",
    "other_false_events_per_minute": "false events a minute, clips of other sounds",
    "other_false_windows": "windows with a false tag, clips of other sounds",
    "stream_clip_recall": "streams: clips whose sound is found",
    "stream_false_events_per_minute": "streams: false events a minute, clips of all sounds",
    "stream_false_windows": "streams: windows with a false tag, clips of all sounds",
    "stream_scenes_sound_recall": "streams: sounds in scenes that are found",
    "stream_scenes_false_events_per_minute": "streams: false events a minute, scenes",
    "stream_scenes_false_windows": "streams: windows with a false tag, scenes",
    "stream_speech_false_events_per_minute": "streams: false events a minute, clean speech",
    "window_ms_ratio": "time a window, in units of `yamnet`",
    "stream_window_ms_ratio": "streams: time a window, in units of `yamnet`",
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
    "identified_10": "one of ten registered speakers named right, by 4 s after three samples of 2.5 s",
    "identified_10_open": "one of ten named right, at the threshold",
    "refused_10": "others given no name, at the threshold",
    "eer_open_10": "equal error rate of missing one of ten and naming another",
    "identified_10_cross": "one of ten named right, 4 s through another channel",
    "identified_10_open_cross": "one of ten named right, at the threshold, through another channel",
    "refused_10_cross": "others given no name, at the threshold, through another channel",
    "diarization_error": "diarization error, conversations built of readers, number of speakers unknown",
    "diarization_error_collar": "diarization error, less 0.25 s around each end of a turn",
    "diarization_error_channel": "diarization error, conversations in rooms with noise",
    "diarization_error_meetings": "diarization error, meetings, turns as users get them, less 0.25 s around each end",
    "activity_on_speech": "time in which somebody is said to speak, readers with their pauses",
    "activity_on_sounds": "time in which somebody is said to speak, sounds without a human voice",
    "activity_real_time_ratio": "time on one thread, of that of the audio",
}
OVERLAP: Final = {
    "overlap_found": "time of two voices at once that is marked, talks of readers who are often at once",
    "overlap_precision": "time that is marked in which two speak",
    "diarization_error_talks": "diarization error of these talks, turns alone",
    "diarization_error_talks_marked": "the same, with the second voice where one is marked",
    "diarization_error_conversations": "diarization error, readers who are seldom at once, turns alone",
    "diarization_error_conversations_marked": "the same, with the second voice",
    "diarization_error_calls": "diarization error, the same through a telephone, turns alone",
    "diarization_error_calls_marked": "the same, with the second voice",
    "diarization_error_meetings": "diarization error, meetings, turns as users get them, less 0.25 s around each end",
    "diarization_error_meetings_marked": "the same, with the second voice",
}
SPEECH: Final = {
    "wer": "words wrong, readings of 2 to 15 s",
    "wer_10db": "words wrong, noise 10 dB below",
    "wer_0db": "words wrong, noise as loud as the speech",
    "wer_long": "words wrong, readings of a minute and more",
    "wer_long_15s": "words wrong, the same in pieces of at most 15 s",
    "wer_long_5s": "words wrong, the same in pieces of at most 5 s",
    "english_named": "pieces of English that are taken for English",
    "invented": "clips without speech in which it hears words",
    "speech_processor_ratio": "processor time, of that of the speech",
}
#: The kinds of models, the titles of their tables, and their figures.
KINDS: Final = (
    (Manifest, "sound events", SOUND),
    (SpeakerManifest, "voices", VOICE),
    (OverlapManifest, "two voices at once", OVERLAP),
    (SpeechManifest, "words", SPEECH),
)
#: Endings of the names of figures that are not shares.
NUMBERS: Final = ("_per_minute", "_per_minute_median", "_ratio", "_ms")
#: Part of the names of figures of one fold, which the card leaves out.
FOLD: Final = "_fold_"
#: Figures that only the manifests have, to keep the card short.
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
    """Return tables of sound, voice, overlap and speech models, in markdown; no table for a kind without a model."""
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
        "tags, and those whose point rests on clips of their sound", [f"{tags}, {rests}" for tags, rests in counts]
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
