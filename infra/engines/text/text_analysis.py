"""Keywords and languages of a transcript."""

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Final

from topics import languages as names_of_languages

_WORD: Final = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")
#: Unicode's name of a script, and the language that uses it most often.
_SCRIPTS: Final = {
    "HANGUL": "Korean",
    "HIRAGANA": "Japanese",
    "KATAKANA": "Japanese",
    "CJK": "Chinese",
    "ARABIC": "Arabic",
    "HEBREW": "Hebrew",
    "THAI": "Thai",
    "GREEK": "Greek",
    "DEVANAGARI": "Hindi",
    "CYRILLIC": "Russian",
}
UNKNOWN: Final = "Unknown"
MOST_KEYWORDS: Final = 8


@cache
def function_words() -> frozenset[str]:
    """Return English stop words: words that do not show a text's subject."""
    return frozenset(Path(__file__).with_name("stop_words.txt").read_text(encoding="utf-8").split())


def words(text: str) -> list[str]:
    return _WORD.findall(text.lower())


def keywords(text: str) -> list[str]:
    """Return the most frequent words except English stop words; of ties, the earlier word comes first."""
    stop = function_words()
    telling = (word for word in words(text) if word not in stop and len(word) > (2 if word.isascii() else 0))
    return [word[:100] for word, _ in Counter(telling).most_common(MOST_KEYWORDS)]


def language(text: str, languages: Sequence[str] = ()) -> str:
    """Return the languages of a text, comma-separated: `languages`, or a guess from its script and stop words."""
    if languages:
        return ", ".join(dict.fromkeys(map(names_of_languages.name, languages)))
    scripts = Counter(unicodedata.name(letter, "").split(" ")[0] for letter in text if letter.isalpha())
    for script, name in _SCRIPTS.items():
        # Japanese text contains Chinese characters, so its own scripts come first and need only a small share.
        if scripts[script] > 0.1 * scripts.total():
            return name
    spoken, stop = words(text), function_words()
    # Every second to third word of English is a function word; a short text may have none.
    return "English" if len(spoken) < 5 or sum(word in stop for word in spoken) > 0.15 * len(spoken) else UNKNOWN
