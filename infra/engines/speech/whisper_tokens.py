"""Whisper's tokens: converts text to numbers and back, and makes the numbers that set the model's task.

The vocabulary is GPT-2's byte-pair encoding (https://github.com/openai/gpt-2/blob/master/src/encoder.py). Each token is
written with one character for each byte, and tokens from earlier merges have smaller numbers. So the numbers are the
ranks of the merges, as in https://github.com/openai/tiktoken.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Final

#: Tokens of hints before a piece: with the words of 28 s they fit the model's 448.
MAX_PROMPT_TOKENS: Final = 200
#: GPT-2's words: a contraction; letters, digits or other signs with the space before them; or white space.
_WORDS: Final = re.compile(r"'s|'t|'re|'ve|'m|'ll|'d| ?[^\W\d_]+| ?\d+| ?(?:[^\s\w]|_)+|\s+(?!\S)|\s+")
#: Languages written without spaces between words.
SPACELESS: Final = frozenset({"zh", "ja", "th", "lo", "my", "yue"})
#: Bytes of a word that are merged together: merging takes quadratic time.
_WORD_BYTES: Final = 64
_LANGUAGE: Final = re.compile(r"<\|([a-z]{2,3})\|>")


@cache
def _bytes_of_characters() -> dict[str, int]:
    """Return the byte for each character of the vocabulary: itself if printable."""
    seen = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in set(seen)]
    return {chr(byte): byte for byte in seen} | {chr(256 + n): byte for n, byte in enumerate(others)}


class Tokens:
    """The tokens of one model."""

    def __init__(self, vocabulary: Sequence[str]) -> None:
        """Take the tokens in order of their numbers.

        Raises:
            ValueError: a required token is missing.
        """
        self.end = vocabulary.index("<|endoftext|>")
        self._start = vocabulary.index("<|startoftranscript|>")
        self._previous = vocabulary.index("<|startofprev|>")
        self._plain = vocabulary.index("<|notimestamps|>")
        self._tasks = {
            task: vocabulary.index(f"<|{task}|>") for task in ("transcribe", "translate") if f"<|{task}|>" in vocabulary
        }
        self.languages = {
            match[1]: number for number, token in enumerate(vocabulary) if (match := _LANGUAGE.fullmatch(token))
        }
        table = _bytes_of_characters()
        self._texts = [bytes(map(table.__getitem__, token)) for token in vocabulary[: self.end]]
        self._numbers = {text: number for number, text in enumerate(self._texts)}

    @classmethod
    def read(cls, path: Path) -> Tokens:
        """Read a file with one token a line.

        Raises:
            OSError: it cannot be read.
            ValueError: a required token is missing.
        """
        return cls(path.read_text(encoding="utf-8").split("\n"))

    def start(self, language: str | None, task: str) -> list[int]:
        """Return the tokens that ask for a text in `language`, without times; None if the model knows only one."""
        if language is None:
            return [self._start, self._plain]
        return [self._start, self.languages[language], self._tasks[task], self._plain]

    def hints(self, text: str) -> list[int]:
        """Return at most 201 tokens, to put before those of `start`, that make the model expect the words of `text`."""
        words = " ".join(text.split())
        return [self._previous, *self.encode(f" {words}")[-MAX_PROMPT_TOKENS:]] if words else []

    def encode(self, text: str) -> list[int]:
        words = (word.encode("utf-8", "replace") for word in _WORDS.findall(text))
        parts = (word[at : at + _WORD_BYTES] for word in words for at in range(0, len(word), _WORD_BYTES))
        return [number for part in parts for number in self._merged(part)]

    def decode(self, tokens: Iterable[int]) -> str:
        """Return the text of tokens; a cut character becomes a replacement character."""
        return b"".join(self._texts[token] for token in tokens if token < self.end).decode("utf-8", "replace")

    def words(self, tokens: Sequence[int], language: str | None) -> Iterator[tuple[str, int]]:
        """Yield words with the white space before them, and the number of tokens of each.

        Signs belong to the word before them. In languages without spaces, each character is a word.
        """
        word, count = "", 0
        for text, length in self._characters(tokens):
            new = text[:1].isspace() or (language in SPACELESS and text[:1].isalnum())
            if new and word.strip():
                yield word, count
                word, count = "", 0
            word, count = word + text, count + length
        if count:
            yield word, count

    def _characters(self, tokens: Sequence[int]) -> Iterator[tuple[str, int]]:
        """Yield the text of each smallest group of tokens that makes whole characters, and the size of the group."""
        first = 0
        for last in range(1, len(tokens) + 1):
            text = self.decode(tokens[first:last])
            if "\ufffd" not in text or last == len(tokens):
                yield text, last - first
                first = last

    def _merged(self, word: bytes) -> list[int]:
        parts = [word[i : i + 1] for i in range(len(word))]
        while len(parts) > 1:
            ranks = [(self._numbers.get(a + b, self.end), at) for at, (a, b) in enumerate(pairwise(parts))]
            rank, at = min(ranks)
            if rank == self.end:
                break
            parts[at : at + 2] = [parts[at] + parts[at + 1]]
        return [self._numbers[part] for part in parts]
