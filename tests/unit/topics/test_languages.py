"""Languages by code and by name."""

from __future__ import annotations

import pytest

from topics import languages


@pytest.mark.parametrize(
    ("given", "code"),
    [
        *[("en", "en"), ("pt-BR", "pt"), ("Korean", "ko"), ("haitian creole", "ht"), ("iw-IL", "he"), (" FR ", "fr")],
        *[("xx", None), ("", None), ("klingon", None), ("e" * 10_000, None)],
    ],
)
def test_codes(given: str, code: str | None) -> None:
    assert languages.code(given) == code


def test_every_code_has_a_name_and_every_name_its_code() -> None:
    assert len(languages.NAMES) == 100
    for code, name in languages.NAMES.items():
        assert (languages.code(code), languages.code(name)) == (code, code)
        assert languages.name(code) == languages.name(name.lower()) == name
    assert languages.name("klingon") == "Klingon"
