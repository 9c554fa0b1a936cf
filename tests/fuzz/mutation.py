"""Mutations of real inputs.

Atheris would be a maintained engine, but it runs on few platforms, and its coverage cannot see the C code that does
most of the work here.
"""

import random
from collections.abc import Sequence
from typing import Final

MOST_BYTES: Final = 64 * 1024
#: Tokens that parsers stumble over.
TOKENS: Final = (
    b"\0", b"\xff", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x80\0\0\0", b"-1", b"0", b"9" * 20, b"1e400",
    b"NaN", b"null", b"true", b"[]", b"{}", b"[" * 200, b'{"a":' * 200, b'"', b"\\u0000", b"\\ud800", b"\r\n",
    b"\r\n\r\n", b"--", b"%00", b"%2e%2e%2f", b"../", b"=", b"==", b"&", b"+", b";", b",", b":", b" ", b"\xc3\x28",
    b"\xed\xa0\x80", b"\xf0\x9f\x90\xb6", b"<v>", b"-->", b"data: ",
    b"Content-Disposition: form-data; name=\"audio\"", b"Content-Length: 5", b"RIFF", b"OggS", b"fLaC", b"ID3",
    b"FORM", b"\xdc\xff\xff", b"\xdd\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff", b"\xcf" + b"\xff" * 8,
    b"\xd3\x80" + b"\0" * 7,
)  # fmt: skip
WAYS: Final = ("flip", "flip", "set", "number", "insert", "token", "token", "delete", "repeat", "cut", "cross", "swap")


class Mutator:
    """Makes inputs from seeds: changed in a few places, sometimes crossed with another."""

    def __init__(self, seeds: Sequence[bytes], random_source: random.Random) -> None:
        self.seeds = list(seeds)
        self._random = random_source

    def next(self) -> bytes:
        data = self._random.choice(self.seeds)
        for _ in range(1 + int(self._random.expovariate(0.7))):
            data = self._changed(data, self._random.choice(WAYS))
        return data[:MOST_BYTES]

    def _changed(self, data: bytes, way: str) -> bytes:
        """Return the input with some bytes at one place replaced by others; to "delete" is to replace them by none."""
        choice = self._random.choice
        # Headers are at the start, so half of the changes go there.
        place = self._random.randrange(min(len(data), 64) + 1 if self._random.random() < 0.5 else len(data) + 1)
        size = choice((1, 2, 4, 8, 16, 64, 256))
        old, left, new = data[place : place + size], size, b""
        match way:
            case "flip":
                old, left = old[:1], 1
                new = bytes(byte ^ 1 << self._random.randrange(8) for byte in old)
            case "set":
                left, new = 1, choice((b"\0", b"\1", b"\x7f", b"\x80", b"\xff", b"\n", b'"', b"\\", b"-"))
            case "number":
                left = choice((1, 2, 4, 8))
                most = 2 ** (8 * left - 1)
                number = choice((0, 1, -1, most - 1, -most, self._random.getrandbits(7)))
                new = number.to_bytes(left, choice(("little", "big")), signed=True)
            case "insert":
                left, new = 0, self._random.randbytes(choice((1, 2, 4, 16)))
            case "token":
                new = choice(TOKENS)
                left = choice((0, len(new)))
            case "repeat":
                left, new = 0, old * choice((1, 2, 64))
            case "cut":
                left = len(data)
            case "cross":
                other = choice(self.seeds)
                left, new = len(data), other[self._random.randrange(len(other) + 1) :]
            case "swap":
                there = self._random.randrange(len(data) + 1)
                new, data = data[there : there + size], data[:there] + old + data[there + size :]
        return data[:place] + new + data[place + left :]
