"""Mutations of real inputs.

Atheris would be a maintained engine, but it runs on few platforms, and its coverage cannot see the C code that does
most of the work here.
"""

import random
from collections.abc import Callable, Sequence
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


class Mutator:
    """Makes inputs from seeds: changed in a few places, sometimes crossed with another."""

    def __init__(self, seeds: Sequence[bytes], random_source: random.Random) -> None:
        self.seeds = list(seeds)
        self._random = random_source
        self._ways: tuple[Callable[[bytearray], None], ...] = (
            self._flip, self._flip, self._set, self._number, self._insert, self._token, self._token, self._delete,
            self._repeat, self._cut, self._cross, self._swap,
        )  # fmt: skip

    def next(self) -> bytes:
        choice = self._random
        data = bytearray(choice.choice(self.seeds))
        for _ in range(1 + int(choice.expovariate(0.7))):
            choice.choice(self._ways)(data)
        return bytes(data[:MOST_BYTES])

    def _place(self, data: bytearray) -> int:
        # Headers are at the start, so half of the changes go there.
        return self._random.randrange(min(len(data), 64) + 1 if self._random.random() < 0.5 else len(data) + 1)

    def _flip(self, data: bytearray) -> None:
        if data:
            data[min(self._place(data), len(data) - 1)] ^= 1 << self._random.randrange(8)

    def _set(self, data: bytearray) -> None:
        if data:
            data[min(self._place(data), len(data) - 1)] = self._random.choice((0, 1, 127, 128, 255, 10, 34, 92, 45))

    def _number(self, data: bytearray) -> None:
        place, size = self._place(data), self._random.choice((1, 2, 4, 8))
        number = self._random.choice(
            (0, 1, -1, 2 ** (8 * size - 1) - 1, -(2 ** (8 * size - 1)), self._random.getrandbits(7))
        )
        data[place : place + size] = number.to_bytes(size, self._random.choice(("little", "big")), signed=True)

    def _insert(self, data: bytearray) -> None:
        place = self._place(data)
        data[place:place] = self._random.randbytes(self._random.choice((1, 2, 4, 16)))

    def _token(self, data: bytearray) -> None:
        place, token = self._place(data), self._random.choice(TOKENS)
        data[place : place + (len(token) if self._random.random() < 0.5 else 0)] = token

    def _delete(self, data: bytearray) -> None:
        place = self._place(data)
        del data[place : place + self._random.choice((1, 2, 4, 16, 256))]

    def _repeat(self, data: bytearray) -> None:
        place, size = self._place(data), self._random.choice((1, 4, 16, 64))
        data[place:place] = data[place : place + size] * self._random.choice((1, 2, 64))

    def _cut(self, data: bytearray) -> None:
        del data[self._place(data) :]

    def _cross(self, data: bytearray) -> None:
        other = self._random.choice(self.seeds)
        data[self._place(data) :] = other[self._random.randrange(len(other) + 1) :]

    def _swap(self, data: bytearray) -> None:
        first, second = self._place(data), self._place(data)
        data[first : first + 4], data[second : second + 4] = data[second : second + 4], data[first : first + 4]
