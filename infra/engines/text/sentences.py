"""A caption and insights by rules: every word follows from the scene alone.

A sentence states what is certain. Windows overlap, so both ends of a sound are uncertain: times enclose it, "then"
follows the last window of what came before, and "while" needs sounds that surely overlap. A sound whose probability is
below `CERTAIN` is "something like" it.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Final

from infra.engines.text import text_analysis
from infra.engines.text.phrases import PLACES
from infra.engines.text.scene import (
    WINDOW_S,
    Scene,
    Sound,
    Stretch,
    is_throughout,
    merge_stretches,
    seconds_together,
    total_seconds,
)
from topics.jobs.payloads import Insights

#: The most sounds in one sentence, in a list of nouns, and in the list of notable sounds.
MOST_CLAUSES: Final = 3
MOST_NOUNS: Final = 4
MOST_NOTABLE: Final = 10
#: A sound of at most two windows is placed by its middle.
SHORT_S: Final = 1.5 * WINDOW_S
#: A sound reaches an end of a recording if it is reported in this share of it there.
EDGE: Final = 0.1
#: A place is mostly one sound if it surely goes on for this share of the time.
MOSTLY: Final = 0.5
#: Words of the transcript that a summary quotes.
QUOTED: Final = 12
#: The limit for languages without spaces between words.
QUOTED_CHARACTERS: Final = 200
LIKE: Final = "something like "
#: Left out of the noun of an intermittent sound.
STEADY: Final = "steady "
#: Places whose sounds matter however short they are, if they are certain and in more than one window.
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
        sounds = scene.background[:2]
        return _sentence(_sequence(sounds, scene.duration) + (_beside(voice, sounds, scene) if voice else ""))
    if voice:
        return _sentence(f"{voice} {_when_spoken(scene)}")
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
    by_place: dict[str, list[Sound]] = defaultdict(list)
    for sound in scene.sounds:
        by_place[_place(sound)].append(sound)
    speech = f"{'' if _surely_spoken(scene) else LIKE}speech"
    if not by_place:
        nothing = "no known sound was recognised" if scene.sounds_known else "sounds were not analysed"
        return _perhaps("speech", _surely_spoken(scene)) if _voice(scene) else f"Unclear: {nothing}"
    place = next((_place(sound) for sound in scene.sounds if _place(sound) in _URGENT), None) or max(
        by_place, key=lambda name: (name != "unknown", sum(map(_weight, by_place[name])), name)
    )
    most = max(by_place[place], key=lambda sound: (sound.is_certain, _weight(sound)))
    mostly = "mostly " if most.is_certain and total_seconds(most.certain) >= MOSTLY * scene.duration else ""
    return f"{_perhaps(place, most.is_certain)}: {mostly}{_noun(most, steady=False)}" + (
        f", with {speech}" if _voice(scene) else ""
    )


def _place(sound: Sound) -> str:
    place = sound.phrase.place
    return "unknown" if place in _URGENT and not (sound.is_certain and sound.seconds > WINDOW_S) else place


def _perhaps(place: str, is_certain: bool) -> str:
    text = PLACES[place]
    return text if is_certain or place == "unknown" else f"Perhaps {text[0].lower()}{text[1:]}"


def _weight(sound: Sound) -> float:
    return sound.peak * sound.seconds


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
    spoken = _sentence(f"{voice} {_when_spoken(scene)}")
    if scene.turns or not scene.words_known:
        return spoken
    return f"{spoken[:-1]}, but no words could be made out."


def _content(scene: Scene, keywords: Sequence[str]) -> str:
    text_words = " ".join(line.text for line in scene.turns).split()
    speakers, says = _speakers(scene), "speakers say" if _voices(scene) > 1 else "speaker says"
    text = f"{speakers} {says} {'more than ' if scene.turns_cut else ''}{_count(len(text_words), 'word')}"
    if keywords:
        text += f", among them {_joined([f'“{word}”' for word in keywords[:3]])}"
    whole = " ".join(text_words)
    quote = " ".join(text_words[:QUOTED])[:QUOTED_CHARACTERS]
    begins = f"begins: “{quote} …”" if len(quote) < len(whole) else f"reads: “{whole}”"
    return f"{_sentence(text)} It {begins}"


# --- clauses --------------------------------------------------------------------------------------------------------


def _sequence(sounds: Sequence[Sound], duration: float) -> str:
    """Join clauses: "then" if a sound begins after all others ended; two that share a time give it once."""
    ordered = sorted(sounds, key=lambda sound: (sound.start, sound.end))
    times = [_when(sound.stretches, sound.seconds, duration) for sound in ordered]
    text = ""
    for number, (sound, when) in enumerate(zip(ordered, times, strict=True)):
        if number and sound.start >= max(before.end for before in ordered[:number]):
            text += ", and then " if ", then " in text else ", then "
        elif number:
            text += " and " if number == len(ordered) - 1 else ", "
        said_next = when in times[number + 1 : number + 2]
        text += " ".join(filter(None, (_clause(sound), _times(sound), "" if said_next else when)))
    return text


def _times(sound: Sound) -> str:
    """Return the frequency in words; a stretch may hold several barks, so their number is not known."""
    if sound.count < 2:
        return ""
    if sound.phrase.kind == "texture":
        return "on and off"
    return "more than once" if sound.count == 2 else "several times" if sound.count < 7 else "many times"


def _when(stretches: Sequence[Stretch], seconds: float, duration: float) -> str:
    """Return a time that encloses all stretches, which have `seconds` without pauses."""
    start, end = stretches[0][0], stretches[-1][1]
    if duration <= 2 * WINDOW_S:
        return ""
    if is_throughout(stretches, seconds, duration):
        return "throughout"
    if start <= EDGE * duration and end >= (1 - EDGE) * duration:
        return ""
    if start < 1:
        return f"in the first {_length(end, math.ceil)}"
    if end > duration - 1:
        return f"in the last {_length(duration - start, math.ceil)}"
    if len(stretches) == 1 and end - start <= SHORT_S:
        return f"around {_length((start + end) / 2)}"
    return f"between {_length(start, math.floor)} and {_length(end, math.ceil)}"


def _voice(scene: Scene) -> str:
    if _voices(scene) > 1:
        return f"{_speakers(scene)} people talk"
    if scene.turns:
        return "somebody speaks"
    return _clause(scene.voices[0]) if scene.voices else ""


def _surely_spoken(scene: Scene) -> bool:
    return bool(scene.turns) or any(sound.is_certain for sound in scene.voices)


def _turns(scene: Scene) -> Sequence[Stretch]:
    return merge_stretches((line.start, line.end) for line in scene.turns)


def _when_spoken(scene: Scene) -> str:
    """Return the time of the turns, or of the voice that `_voice` names."""
    if scene.turns:
        return _when(_turns(scene), total_seconds(_turns(scene)), scene.duration)
    return _when(scene.voices[0].stretches, scene.voices[0].seconds, scene.duration)


def _beside(voice: str, sounds: Sequence[Sound], scene: Scene) -> str:
    """Return the clause of speech: with "while" if it surely overlaps each sound, otherwise with its own time."""
    spoken = _turns(scene) if scene.turns else scene.voices[0].certain
    if all(seconds_together(spoken, sound.certain) for sound in sounds):
        return f" while {voice}"
    return f", and {voice} {_when_spoken(scene)}"


def _voices(scene: Scene) -> int:
    return len({line.speaker for line in scene.turns})


def _speakers(scene: Scene) -> str:
    """Return the number of speakers in words; turns that are missing may have more."""
    return f"{'at least ' if scene.turns_cut else ''}{_number(_voices(scene))}"


# --- words ----------------------------------------------------------------------------------------------------------


def _clause(sound: Sound) -> str:
    return sound.phrase.clause if sound.is_certain else f"{_noun(sound, steady=False)} is heard"


def _noun(sound: Sound, steady: bool) -> str:
    noun = sound.phrase.noun if steady else sound.phrase.noun.removeprefix(STEADY)
    return noun if sound.is_certain else f"{LIKE}{noun}"


def _nouns(sounds: Sequence[Sound]) -> str:
    return _joined([_noun(sound, steady=sound.count == 1) for sound in sounds])


def _joined(parts: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))


def _sentence(text: str) -> str:
    text = text.strip()
    return f"{text[:1].upper()}{text[1:]}."


def _number(count: int) -> str:
    return _NUMBERS[count] if count < len(_NUMBERS) else str(count)


def _count(count: int, noun: str) -> str:
    return f"{_number(count)} {noun}{'' if count == 1 else 's'}"


def _length(seconds: float, rounded: Callable[[float], int] = round) -> str:
    """Format a length or time in whole seconds, because windows are no more precise; in tenths below a second."""
    if seconds < 1:
        return f"{rounded(10 * seconds) / 10:g} s"
    minutes, rest = divmod(rounded(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    parts = ((hours, "h"), (minutes, "min"), (rest, "s"))
    return " ".join(f"{amount} {unit}" for amount, unit in parts if amount)
