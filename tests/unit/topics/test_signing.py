"""Texts that only this deployment can make."""

from __future__ import annotations

import pytest

from topics.signing import Signer

SIGNER = Signer(b"s" * 32, b"a purpose")


def test_what_was_sealed_is_opened() -> None:
    text = SIGNER.seal(b"1234567", b"context")
    assert SIGNER.open(text, b"context") == b"1234567"
    assert text == SIGNER.seal(b"1234567", b"context")


@pytest.mark.parametrize(
    ("other", "context"),
    [
        (SIGNER, b"other"),
        (SIGNER, b""),
        (Signer(b"t" * 32, b"a purpose"), b"context"),
        (Signer(b"s" * 32, b"b purpose"), b"context"),
        (Signer(b"s" * 32, b"a purpose", 17), b"context"),
    ],
)
def test_nothing_else_is_opened(other: Signer, context: bytes) -> None:
    assert other.open(SIGNER.seal(b"1234567", b"context"), context) is None


def test_no_letter_can_be_changed() -> None:
    text = SIGNER.seal(b"1234567")
    for at in range(len(text)):
        assert SIGNER.open(text[:at] + ("A" if text[at] != "A" else "B") + text[at + 1 :]) is None


@pytest.mark.parametrize("text", ["", "A", "AAAA", "====", "é" * 4, "A" * 516, "AAAA\n", "AA AA", "\0\0\0\0"])
def test_what_is_no_text_of_ours(text: str) -> None:
    assert SIGNER.open(text) is None


def test_contents_are_padded_to_the_letter() -> None:
    for length in range(6):
        assert (length + SIGNER.padding(length) + 14) % 3 == 0
        assert "=" not in SIGNER.seal(bytes(length + SIGNER.padding(length)))
