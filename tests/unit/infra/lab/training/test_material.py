"""What is learned from: labels, groups and folds of crops, the teacher's word, and how often each is drawn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from infra.lab.training import material
from infra.lab.training.clips import LABELS, read_clips
from infra.lab.training.material import SHARES, Material
from tests.unit.infra.lab.training.recordings import write


class Teacher:
    """Says the mean of a patch."""

    def run(self, _outputs: list[str], batch: dict[str, Any]) -> list[Any]:
        means = batch["log_mel"].mean(axis=(1, 2))
        return [np.repeat(means[:, np.newaxis], 521, axis=1), np.repeat(means[:, np.newaxis], 1024, axis=1)]


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Material:
    rows = ["a,1,dog,1,1,u,Ann,CC0", "b,2,dog,1,2,u,Ann,CC0", "c,3,rain,1,3,u,Ann,CC0", "d,4,wind,0,4,u,Ann,CC0"]
    data = write(tmp_path_factory.mktemp("data"), rows, ["s,train,19,F,3.0,CC-BY-4.0"])
    return material.prepare(read_clips(data), Teacher(), seed=1, effort=0.1)


def test_rows(known: Material) -> None:
    counts = [3, 3, 3, 2, 2]
    assert known.folds[:9].tolist() == np.repeat([1, 2, 3], 3).tolist()
    assert known.groups[: sum(counts)].tolist() == np.repeat([0, 0, 0, 1, 2], counts).tolist()
    assert known.labels[:6, LABELS.index("dog")].all()
    assert known.labels[9:11].sum() == 0
    assert known.labels[11:13, LABELS.index("speech")].all()
    assert (known.groups[13:] == list(SHARES).index("synthetic")).all()
    assert set(known.folds[13:].tolist()) == {1, 2, 3, 4}
    np.testing.assert_allclose(known.scores[:, 7], known.patches.mean(axis=(1, 2), dtype=np.float32), atol=2e-2)


def test_a_fold_left_out(known: Material) -> None:
    rest = known.rows(known.folds != 1)
    assert 1 not in rest.folds
    assert len(rest.patches) == len(rest.labels) == len(rest.embeddings) == (known.folds != 1).sum()


def test_shares(known: Material) -> None:
    chances = material.draw_chances(known)
    for index, share in enumerate(SHARES.values()):
        assert chances[known.groups == index].sum() == pytest.approx(share)
    dogs, rains = (known.labels[:, LABELS.index(label)] == 1 for label in ("dog", "rain"))
    assert chances[dogs].sum() == pytest.approx(chances[rains].sum())
