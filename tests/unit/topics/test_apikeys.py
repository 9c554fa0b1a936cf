"""API keys: form, checksum, digest and what is shown of them."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics import apikeys
from topics.apikeys import KeyKind
from topics.keys import ALPHABET

PROJECT_KEY = "esp_0123456789ABCDEFGHIJKLMNOPQRST0Esz4I"


def test_the_checksum_does_not_change_between_versions() -> None:
    assert apikeys.well_formed(PROJECT_KEY) is True


@pytest.mark.parametrize("kind", KeyKind)
def test_a_new_key_is_well_formed_and_typed(kind: KeyKind) -> None:
    key = apikeys.new(kind)
    assert key.startswith(kind)
    assert len(key) == len(kind) + 36
    assert apikeys.well_formed(key) is True


def test_new_keys_differ() -> None:
    assert len({apikeys.new(KeyKind.PROJECT) for _ in range(100)}) == 100


@given(place=st.integers(len(KeyKind.PROJECT), len(PROJECT_KEY) - 1), character=st.sampled_from(ALPHABET))
def test_one_wrong_character_is_noticed(place: int, character: str) -> None:
    typed = PROJECT_KEY[:place] + character + PROJECT_KEY[place + 1 :]
    assert apikeys.well_formed(typed) is (typed == PROJECT_KEY)


def test_a_key_of_another_kind_is_noticed() -> None:
    assert apikeys.well_formed(PROJECT_KEY.replace(KeyKind.PROJECT, KeyKind.ORGANIZATION)) is False


@pytest.mark.parametrize(
    "text", ["", "esp_", PROJECT_KEY[:-1], PROJECT_KEY + "0", " " + PROJECT_KEY, "a" * 40, "é" * 40]
)
def test_another_form_needs_the_look_up(text: str) -> None:
    assert apikeys.well_formed(text) is None


@given(st.text())
def test_any_text_can_be_asked_about(text: str) -> None:
    assert apikeys.well_formed(text) in (True, False, None)
    assert len(apikeys.digest(text)) == 32
    assert apikeys.redact_all(text) == text


@pytest.mark.parametrize("key", ["a" * 20, "correct horse battery staple", "!" * 200, PROJECT_KEY])
def test_an_operator_may_choose(key: str) -> None:
    assert apikeys.fault(key) is None


@pytest.mark.parametrize(
    ("key", "why"),
    [
        ("a" * 19, "at least 20"),
        (" " + "a" * 20, "space"),
        ("a" * 20 + "\n", "printable"),
        ("a\tb" * 20, "printable"),
        ("é" * 20, "ASCII"),
        (PROJECT_KEY[:-1] + "0", "checksum"),
    ],
)
def test_an_operator_may_not_choose(key: str, why: str) -> None:
    assert why in (apikeys.fault(key) or "")


@pytest.mark.parametrize(
    ("key", "why"),
    [
        ("a" * 40, "repeats"),
        ("0123456789" * 3, "repeats"),
        ("passpasspasspassword", "8 different"),
        ("tests-administrator-key", None),
        (PROJECT_KEY, None),
    ],
)
def test_a_key_that_opens_everything_is_hard_to_guess(key: str, why: str | None) -> None:
    found = apikeys.weakness(key)
    assert (found is None) if why is None else (why in str(found))


def test_the_digest_is_sha256() -> None:
    assert apikeys.digest(PROJECT_KEY) == hashlib.sha256(PROJECT_KEY.encode()).digest()


@pytest.mark.parametrize(
    ("key", "shown"),
    [
        (PROJECT_KEY, f"esp_…{PROJECT_KEY[-4:]}"),
        ("a-key-somebody-chose-1234", "…1234"),
        ("short", "…"),
    ],
)
def test_little_of_a_key_is_shown(key: str, shown: str) -> None:
    assert apikeys.redact(key) == shown


def test_keys_inside_text_are_redacted() -> None:
    other = apikeys.new(KeyKind.ORGANIZATION)
    text = apikeys.redact_all(f"GET /?key={PROJECT_KEY}&org={other} done")
    assert text == f"GET /?key=esp_…{PROJECT_KEY[-4:]}&org=eso_…{other[-4:]} done"
