"""Maps the label of a recording to its true tags and its tolerated tags.

A true tag names the sound. Reporting a tolerated tag counts neither for nor against. Tolerated is

- a tag that shares a class with a true one (`Break` on breaking glass): two names for one sound;
- a tag above or below it in AudioSet's ontology (`Engine` on a chainsaw, `Bird_chirp` on a crow, `Dog_growl` on a dog);
- a sound that naturally comes with it: rain and wind in a thunderstorm, wind at the sea, running water after a flush.

A merely similar sound is false: rain on sea waves, laughter on a crying baby, a motorcycle on a chainsaw.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from streams.models.manifest import ModelTag


class Meaning(msgspec.Struct, frozen=True):
    """The true and the tolerated tags of a label, by name."""

    true: tuple[str, ...]
    tolerated: tuple[str, ...] = ()


def _meaning(true: str, tolerated: str = "") -> Meaning:
    return Meaning(tuple(true.split()), tuple(tolerated.split()))


#: The fifty labels of ESC-50, and clean speech. If a label has no true tag, none may be reported.
LABELS: Final = {
    "airplane": _meaning("Aircraft_noise", "Engine"),
    "breathing": _meaning("Breathing", "Snore"),
    "brushing_teeth": _meaning("Toothbrush", "Electric_shaver_or_toothbrush"),
    "can_opening": _meaning(""),
    "car_horn": _meaning("Car_horn", "Car Engine"),
    "cat": _meaning("Cat_meow", "Cat_purr"),
    "chainsaw": _meaning("Chainsaw", "Engine"),
    "chirping_birds": _meaning("Bird_chirp"),
    "church_bells": _meaning("Church_bell Bell"),
    "clapping": _meaning("Clap Applause", "Cheering Crowd"),
    "clock_alarm": _meaning("Alarm", "Appliance_alarm Bell Clock_tick"),
    "clock_tick": _meaning("Clock_tick"),
    "coughing": _meaning("Cough", "Throat_clear"),
    "cow": _meaning("Cow_moo"),
    "crackling_fire": _meaning("Fire_crackle"),
    "crickets": _meaning("Cricket", "Insect_buzz"),
    "crow": _meaning("Crow_caw", "Bird_chirp"),
    "crying_baby": _meaning("Baby_cry Crying", "Moan Scream Yell"),
    "dog": _meaning("Dog_bark", "Dog_growl Dog_howl"),
    "door_wood_creaks": _meaning("Creak", "Door_slam"),
    "door_wood_knock": _meaning("Knock", "Door_slam Thud"),
    "drinking_sipping": _meaning(""),
    "engine": _meaning("Engine", "Boat Car Motorcycle"),
    "fireworks": _meaning("Fireworks", "Explosion Fire_crackle"),
    "footsteps": _meaning("Footstep"),
    "frog": _meaning("Frog_croak"),
    "glass_breaking": _meaning("Glass_break", "Dining_clink"),
    "hand_saw": _meaning("Saw"),
    "helicopter": _meaning("Helicopter Aircraft_noise", "Engine"),
    "hen": _meaning("Hen_cluck Rooster_crow", "Bird_chirp"),
    "insects": _meaning("Insect_buzz", "Cricket Mosquito"),
    "keyboard_typing": _meaning("Keyboard_or_mouse"),
    "laughing": _meaning("Laughter", "Crowd Speech"),
    "mouse_click": _meaning("Keyboard_or_mouse"),
    "pig": _meaning("Pig_oink"),
    "pouring_water": _meaning("Water_tap_or_liquid_fill", "Water_drip"),
    "rain": _meaning("Rain", "Water_drip"),
    "rooster": _meaning("Rooster_crow", "Bird_chirp Hen_cluck"),
    "sea_waves": _meaning("Sea_waves", "Wind_noise"),
    "sheep": _meaning("Sheep_bleat"),
    "siren": _meaning("Siren", "Alarm Car Engine"),
    "sneezing": _meaning("Sneeze"),
    "snoring": _meaning("Snore", "Breathing"),
    "speech": _meaning("Speech"),
    "thunderstorm": _meaning("Thunder", "Rain Wind_noise"),
    "toilet_flush": _meaning("Toilet_flush", "Water_run Water_tap_or_liquid_fill"),
    "train": _meaning("Train", "Engine Train_horn"),
    "vacuum_cleaner": _meaning("Vacuum_cleaner"),
    "washing_machine": _meaning("", "Water_run Water_tap_or_liquid_fill"),
    "water_drops": _meaning("Water_drip", "Water_run Water_tap_or_liquid_fill"),
    "wind": _meaning("Wind_noise"),
}

#: The tag of each ESC-10 label; the highest mean tag score names the class.
TEN: Final = {
    "chainsaw": "Chainsaw",
    "clock_tick": "Clock_tick",
    "crackling_fire": "Fire_crackle",
    "crying_baby": "Baby_cry",
    "dog": "Dog_bark",
    "helicopter": "Helicopter",
    "rain": "Rain",
    "rooster": "Rooster_crow",
    "sea_waves": "Sea_waves",
    "sneezing": "Sneeze",
}


def columns(meaning: Meaning, tags: Sequence[ModelTag]) -> tuple[list[int], list[int]]:
    """Return the columns of the model's tags that are (true, allowed); unknown names are ignored."""
    classes = {index for tag in tags if tag.name in meaning.true for index in tag.classes}
    true = [column for column, tag in enumerate(tags) if tag.name in meaning.true]
    names = {*meaning.true, *meaning.tolerated}
    allowed = [column for column, tag in enumerate(tags) if tag.name in names or not classes.isdisjoint(tag.classes)]
    return true, allowed
