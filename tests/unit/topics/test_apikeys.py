"""API keys and texts signed by this deployment: format, checksum, digest, and their displayed part."""

import hashlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics import apikeys
from topics.apikeys import KeyKind, fault, weakness
from topics.keys import ALPHABET
from topics.signing import Signer

PROJECT_KEY = "esp_0123456789ABCDEFGHIJKLMNOPQRST0Esz4I"


@pytest.mark.parametrize("kind", KeyKind)
def test_new_key_is_well_formed_and_typed(kind: KeyKind) -> None:
    key = apikeys.new(kind)
    assert key.startswith(kind)
    assert len(key) == len(kind) + 36
    assert apikeys.well_formed(key) is True
    assert key != apikeys.new(kind)


def test_checksum_and_digest_never_change() -> None:
    assert apikeys.well_formed(PROJECT_KEY) is True
    assert apikeys.digest(PROJECT_KEY) == hashlib.sha256(PROJECT_KEY.encode()).digest()


@given(place=st.integers(len(KeyKind.PROJECT), len(PROJECT_KEY) - 1), character=st.sampled_from(ALPHABET))
def test_single_wrong_character_is_detected(place: int, character: str) -> None:
    typed = PROJECT_KEY[:place] + character + PROJECT_KEY[place + 1 :]
    assert apikeys.well_formed(typed) is (typed == PROJECT_KEY)


@pytest.mark.parametrize(
    ("text", "known"),
    [
        (PROJECT_KEY.replace(KeyKind.PROJECT, KeyKind.ORGANIZATION), False),
        *(
            (text, None)
            for text in ("", "esp_", PROJECT_KEY[:-1], PROJECT_KEY + "0", " " + PROJECT_KEY, "a" * 40, "é" * 40)
        ),
    ],
)
def test_wrong_kind_is_invalid_and_other_formats_are_undecided(text: str, known: bool | None) -> None:
    assert apikeys.well_formed(text) is known


@pytest.mark.parametrize(
    ("check", "key", "why"),
    [
        *((fault, key, None) for key in ("a" * 20, "correct horse battery staple", "!" * 200, PROJECT_KEY)),
        (fault, "a" * 19, "at least 20"),
        (fault, " " + "a" * 20, "space"),
        (fault, "a" * 20 + "\n", "printable"),
        (fault, "a\tb" * 20, "printable"),
        (fault, "é" * 20, "ASCII"),
        (fault, PROJECT_KEY[:-1] + "0", "checksum"),
        (weakness, "a" * 40, "repeats"),
        (weakness, "0123456789" * 3, "repeats"),
        (weakness, "passpasspasspassword", "8 different"),
        *((weakness, key, None) for key in ("tests-administrator-key", PROJECT_KEY)),
    ],
)
def test_key_chosen_by_operator_is_validated(check: Callable[[str], str | None], key: str, why: str | None) -> None:
    found = check(key)
    assert (found is None) if why is None else (why in str(found))


@pytest.mark.parametrize(
    ("key", "shown"),
    [(PROJECT_KEY, f"esp_…{PROJECT_KEY[-4:]}"), ("a-key-somebody-chose-1234", "…1234"), ("short", "…")],
)
def test_redacted_key_shows_only_its_end(key: str, shown: str) -> None:
    assert apikeys.redact(key) == shown


def test_keys_inside_text_are_redacted() -> None:
    other = apikeys.new(KeyKind.ORGANIZATION)
    text = apikeys.redact_all(f"GET /?key={PROJECT_KEY}&org={other} done")
    assert text == f"GET /?key=esp_…{PROJECT_KEY[-4:]}&org=eso_…{other[-4:]} done"


SIGNER = Signer(b"s" * 32, b"a purpose")


def test_sealed_content_is_opened_again() -> None:
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
def test_text_of_other_signer_or_context_is_rejected(other: Signer, context: bytes) -> None:
    assert other.open(SIGNER.seal(b"1234567", b"context"), context) is None


def test_altered_sealed_text_is_rejected() -> None:
    text = SIGNER.seal(b"1234567")
    for at in range(len(text)):
        assert SIGNER.open(text[:at] + ("A" if text[at] != "A" else "B") + text[at + 1 :]) is None


@pytest.mark.parametrize("text", ["", "A", "AAAA", "====", "é" * 4, "A" * 516, "AAAA\n", "AA AA", "\0\0\0\0"])
def test_malformed_sealed_text_is_rejected(text: str) -> None:
    assert SIGNER.open(text) is None


def test_sealed_text_needs_no_base64_padding() -> None:
    for length in range(6):
        assert (length + SIGNER.padding(length) + 14) % 3 == 0
        assert "=" not in SIGNER.seal(bytes(length + SIGNER.padding(length)))
