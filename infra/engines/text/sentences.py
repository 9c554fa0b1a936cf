"""A caption and insights by rules: every word follows from the scene alone."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from infra.engines.text import text_analysis
from infra.engines.text.phrases import PLACES
from infra.engines.text.scene import BACKGROUND, Scene, Sound, Stretch, merge_stretches, seconds_together
from topics.jobs.payloads import Insights

#: The most sounds in one sentence, in a list of nouns, and in the list of notable sounds.
MOST_CLAUSES: Final = 3
MOST_NOUNS: Final = 4
MOST_NOTABLE: Final = 10
#: Times are only as exact as the windows of the timeline: a shorter sound is placed by its middle.
WINDOW_S: Final = 3.0
#: A sound is heard throughout if it lasts from the first tenth of a recording into the last, and fills most of it.
EDGE: Final = 0.1
#: Words of the transcript that a summary quotes.
QUOTED: Final = 12
#: The limit for languages without spaces between words.
QUOTED_CHARACTERS: Final = 200
#: Left out of the noun of an intermittent sound.
STEADY: Final = "steady "
#: Places whose sounds matter however short they are.
_URGENT: Final = frozenset({"danger", "alarm"})
_NUMBERS: Final = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


def caption(scene: Scene) -> str:
    """Return one sentence about a recording."""
    voice = _voice(scene)
    if scene.foreground:
        sounds = scene.foreground[:MOST_CLAUSES]
        text = _sequence(sounds, scene.duration)
        if scene.background:
            text += f" over {_nouns(scene.background[:2])}"
        return _sentence(text + (_beside(voice, sounds, scene) if voice else ""))
    if scene.background:
        text = _sequence(scene.background[:2], scene.duration)
        return _sentence(f"{text} while {voice}" if voice else text)
    if voice:
        return _sentence(f"{voice} {_when(_spoken(scene), scene.duration)}")
    nothing = "no known sound is" if scene.sounds_known else "no words are"
    return _sentence(f"{nothing} heard in {_length(scene.duration)} of audio")


def insights(scene: Scene) -> Insights:
    """Return the insights; without a transcript they say nothing about the content of speech."""
    summary = " ".join(filter(None, (_opening(scene), _happenings(scene), _speech(scene))))
    telling = scene.foreground or (*scene.background, *scene.voices)
    notable = tuple(sound.phrase.tag for sound in telling[:MOST_NOTABLE])
    if not scene.turns:
        return Insights(bool(_voice(scene)), environment(scene), summary, notable)
    text = " ".join(line.text for line in scene.turns)
    keywords = tuple(text_analysis.keywords(text))
    return Insights(
        True,
        environment(scene),
        summary,
        notable,
        text_analysis.language(text, scene.languages),
        _content(scene, keywords),
        keywords,
    )


def environment(scene: Scene) -> str:
    """Return the kind of place that the sounds suggest, and the sound that suggests it most."""
    weights: dict[str, float] = defaultdict(float)
    for sound in scene.sounds:
        weights[sound.phrase.place] += sound.peak * sound.seconds
    urgent = next((sound for sound in scene.sounds if sound.phrase.place in _URGENT and sound.peak > 0.5), None)
    if not weights:
        nothing = "no known sound was recognised" if scene.sounds_known else "sounds were not analysed"
        return PLACES["speech"] if _voice(scene) else f"Unclear: {nothing}"
    place = urgent.phrase.place if urgent else max(weights, key=lambda name: (weights[name], name))
    there = [sound for sound in scene.sounds if sound.phrase.place == place]
    most = max(there, key=lambda sound: sound.peak * sound.seconds)
    return f"{PLACES[place]}: mostly {most.phrase.noun.removeprefix(STEADY)}" + (
        ", with speech" if _voice(scene) else ""
    )


# --- sentences of the summary ---------------------------------------------------------------------------------------


def _opening(scene: Scene) -> str:
    length = _length(scene.duration)
    if scene.background:
        return f"This recording of {length} has {_nouns(scene.background[:MOST_NOUNS])} in the background."
    if scene.foreground or _voice(scene) or not scene.sounds_known:
        return f"This recording is {length} long."
    return f"This recording of {length} holds no sound that is known."


def _happenings(scene: Scene) -> str:
    if not scene.foreground:
        return "" if _voice(scene) or not scene.sounds_known else "Nothing in it stands out."
    text = _sequence(scene.foreground[:MOST_CLAUSES], scene.duration)
    rest = scene.foreground[MOST_CLAUSES : MOST_CLAUSES + MOST_NOUNS]
    return _sentence(f"{text}, besides {_nouns(rest)}" if rest else text)


def _speech(scene: Scene) -> str:
    voice = _voice(scene)
    if not voice:
        return ""
    spoken = _sentence(f"{voice} {_when(_spoken(scene), scene.duration)}".rstrip())
    if scene.turns or not scene.words_known:
        return spoken
    return f"{spoken[:-1]}, but no words could be made out."


def _content(scene: Scene, keywords: Sequence[str]) -> str:
    text_words = " ".join(line.text for line in scene.turns).split()
    speakers, says = _speakers(scene), "speakers say" if _voices(scene) > 1 else "speaker says"
    text = f"{speakers} {says} {'more than ' if scene.turns_cut else ''}{_count(len(text_words), 'word')}"
    if keywords:
        text += f", mostly about {_joined([f'“{word}”' for word in keywords[:3]])}"
    whole = " ".join(text_words)
    quote = " ".join(text_words[:QUOTED])[:QUOTED_CHARACTERS]
    begins = f"begins: “{quote} …”" if len(quote) < len(whole) else f"reads: “{whole}”"
    return f"{_sentence(text)} It {begins}"


# --- clauses --------------------------------------------------------------------------------------------------------


def _sequence(sounds: Sequence[Sound], duration: float) -> str:
    """Join clauses: "then" if a sound begins after the previous one ended; two that share a time give it once."""
    ordered = sorted(sounds, key=lambda sound: (sound.start, sound.end))
    times = [_when(sound.stretches, duration) for sound in ordered]
    text = ""
    for number, (sound, when) in enumerate(zip(ordered, times, strict=True)):
        if number and sound.start >= ordered[number - 1].end:
            text += ", and then " if ", then " in text else ", then "
        elif number:
            text += " and " if number == len(ordered) - 1 else ", "
        said_next = when in times[number + 1 : number + 2]
        text += " ".join(filter(None, (sound.phrase.clause, _times(sound), "" if said_next else when)))
    return text


def _times(sound: Sound) -> str:
    """Return the frequency in words; a single event may hold several barks, so it is never called "once"."""
    if sound.count < 2:
        return ""
    if sound.phrase.kind == "texture":
        return "on and off"
    return {2: "twice", 3: "three times"}.get(sound.count, "several times" if sound.count < 7 else "many times")


def _when(stretches: Sequence[Stretch], duration: float) -> str:
    start, end = stretches[0][0], stretches[-1][1]
    if duration <= WINDOW_S:
        return ""
    if start <= EDGE * duration and end >= (1 - EDGE) * duration:
        if sum(end - start for start, end in stretches) >= BACKGROUND * duration:
            return "throughout"
    elif start < 1:
        return f"in the first {_length(end)}"
    elif end > duration - 1:
        return f"in the last {_length(duration - start)}"
    if len(stretches) > 1:
        return f"between {_length(start)} and {_length(end)}"
    if end - start <= WINDOW_S:
        return f"around {_length((start + end) / 2)}"
    return f"from {_length(start)} to {_length(end)}"


def _voice(scene: Scene) -> str:
    if _voices(scene) > 1:
        return f"{_speakers(scene)} people talk"
    if scene.voices:
        return scene.voices[0].phrase.clause
    return "somebody speaks" if scene.turns else ""


def _spoken(scene: Scene) -> Sequence[Stretch]:
    if scene.turns:
        return merge_stretches((line.start, line.end) for line in scene.turns)
    return merge_stretches(sorted(stretch for sound in scene.voices for stretch in sound.stretches))


def _beside(voice: str, sounds: Sequence[Sound], scene: Scene) -> str:
    """Return the clause of speech: with "while" if it overlaps the sounds, otherwise with its own time."""
    spoken = _spoken(scene)
    if any(seconds_together(spoken, sound.stretches) for sound in sounds):
        return f" while {voice}"
    return f", and {voice} {_when(spoken, scene.duration)}"


def _voices(scene: Scene) -> int:
    return len({line.speaker for line in scene.turns})


def _speakers(scene: Scene) -> str:
    """Return the number of speakers in words; turns that are missing may have more."""
    return f"{'at least ' if scene.turns_cut else ''}{_number(_voices(scene))}"


# --- words ----------------------------------------------------------------------------------------------------------


def _nouns(sounds: Sequence[Sound]) -> str:
    return _joined([sound.phrase.noun.removeprefix(STEADY if sound.count > 1 else "") for sound in sounds])


def _joined(parts: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))


def _sentence(text: str) -> str:
    text = text.strip()
    return f"{text[:1].upper()}{text[1:]}."


def _number(count: int) -> str:
    return _NUMBERS[count] if count < len(_NUMBERS) else str(count)


def _count(count: int, noun: str) -> str:
    return f"{_number(count)} {noun}{'' if count == 1 else 's'}"


def _length(seconds: float) -> str:
    """Format a length or time in whole seconds, because windows are no more precise; in tenths below a second."""
    if seconds < 1:
        return f"{round(seconds, 1):g} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    parts = ((hours, "h"), (minutes, "min"), (rest, "s"))
    return " ".join(f"{amount} {unit}" for amount, unit in parts if amount)
