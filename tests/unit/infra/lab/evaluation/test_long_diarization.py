"""Conversations of minutes, and the table of what diarization finds in them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from infra.lab.evaluation.conversations import Conversation
from infra.lab.evaluation.diarization import DiarizationErrors
from infra.lab.evaluation.long_conversations import LongConversationMaker
from infra.lab.evaluation.long_diarization import Cell, evaluate_cells, table
from infra.lab.evaluation.utterances import Utterance
from streams.voice.speech_segments import RATE
from tests.unit.streams.voice.tones import Ear, Tones, talk


class Keen(Ear):
    """Hears quiet speech, too."""

    least = 0.002


READERS = [Utterance(f"{number}", "F", 0.3 * talk((number, 6), (None, 0.5), (number, 5.5))) for number in range(3)]


@pytest.fixture(scope="module")
def makes() -> LongConversationMaker:
    return LongConversationMaker(READERS, Keen())


@pytest.fixture(scope="module")
def quiet(makes: LongConversationMaker) -> Conversation:
    return makes.make(0.5, 3, 0)


def test_the_same_arguments_give_the_same(makes: LongConversationMaker, quiet: Conversation) -> None:
    again = makes.make(0.5, 3, 0)
    assert again.turns == quiet.turns
    assert np.array_equal(again.samples, quiet.samples)
    assert makes.make(0.5, 3, 0, seed=1).turns != quiet.turns


def test_all_talk_until_the_end(quiet: Conversation) -> None:
    assert {turn.speaker for turn in quiet.turns} == {0, 1, 2}
    assert 29 < quiet.spans[-1].end_s < len(quiet.samples) / RATE < 41
    for turn in quiet.turns:
        assert any(span.start_s <= turn.start_s and turn.end_s <= span.end_s + 0.01 for span in quiet.spans)


def test_turns_are_where_somebody_is_heard(quiet: Conversation) -> None:
    talking = np.zeros(len(quiet.samples), bool)
    for turn in quiet.turns:
        talking[round(turn.start_s * RATE) : round(turn.end_s * RATE)] = True
    level = np.abs(quiet.samples)
    assert level[talking].mean() > 20 * level[~talking].mean()


def test_odd_ones_have_noise(makes: LongConversationMaker, quiet: Conversation) -> None:
    assert np.abs(quiet.samples[:800]).max() == 0
    assert np.abs(makes.make(0.1, 2, 1).samples[:800]).max() > 0


def test_one_talks_alone(makes: LongConversationMaker) -> None:
    made = makes.make(0.3, 1, 0)
    assert {span.speaker for span in made.spans} == {0}
    assert len(made.spans) > 1
    assert all(one.end_s < other.start_s for one, other in itertools.pairwise(made.spans))


def test_too_few_readers_are_refused(makes: LongConversationMaker) -> None:
    with pytest.raises(ValueError, match="3 speakers have said enough, expected 4"):
        makes.make(1, 4, 0)


def test_tones_are_told_apart(makes: LongConversationMaker) -> None:
    cell = evaluate_cells(Tones(), Keen(), makes, [(0.3, 2)], seed=0)[0.3, 2]
    assert (cell.conversations, cell.found, cell.right) == (2, 4, 2)
    assert cell.errors.rate < 0.3


def test_table() -> None:
    one, other = Cell(DiarizationErrors(1, 0, 0, 10), 3, 0, 1), Cell(DiarizationErrors(0, 0, 0, 10), 4, 2, 2)
    lines = table({(1.0, 2): one, (10.0, 2): other}).splitlines()
    assert [line.split() for line in lines] == [
        ["speakers", "2", "all"],
        ["1", "min", "10.0%", "3.0", "0/1", "10.0%", "3.0", "0/1"],
        ["10", "min", "0.0%", "2.0", "2/2", "0.0%", "2.0", "2/2"],
        ["all", "5.0%", "2.3", "2/3", "5.0%", "2.3", "2/3"],
    ]
