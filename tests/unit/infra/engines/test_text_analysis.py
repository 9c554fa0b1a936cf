"""Keywords and languages of a transcript."""

from __future__ import annotations

import pytest

from infra.engines import text_analysis


def test_keywords_are_the_words_said_most_often_without_function_words() -> None:
    text = "The train is late. That train was late too, and the platform is full of people waiting for the train."
    assert text_analysis.keywords(text, 4) == ["train", "late", "platform", "full"]


def test_a_word_with_an_apostrophe_is_one() -> None:
    assert text_analysis.words("They've gone, don’t wait") == ["they've", "gone", "don’t", "wait"]


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("where is the station and when does the last train leave", "English"),
        ("안녕하세요 만나서 반갑습니다", "Korean"),
        ("駅はどこですか", "Japanese"),
        ("车站在哪里", "Chinese"),
        ("где находится вокзал", "Russian"),
        ("ja haluaisin kaksi lippua huomisaamun junaan kiitos", "Unknown"),
    ],
)
def test_the_language_follows_from_script_and_small_words(text: str, language: str) -> None:
    assert text_analysis.language(text) == language


def test_languages_that_somebody_knows_count_more() -> None:
    assert (
        text_analysis.language("hello", ["ko", "english", "pt-BR", "en", "tlh"]) == "Korean, English, Portuguese, Tlh"
    )
