"""Runs many histories, in one process or several, and sums them up."""

import gc
import multiprocessing
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from tests.simulation.history import Outcome, run
from tests.simulation.regressions import REGRESSIONS
from tests.simulation.seams import simulated

#: Histories per task of a process.
TOGETHER: Final = 20


class Summary:
    """Totals of all histories."""

    def __init__(self, seed: int) -> None:
        self.first = self.last = seed
        self.histories = self.wrong = self.commands = self.takeovers = 0
        self.faults: Counter[str] = Counter()

    def add(self, outcome: Outcome) -> None:
        self.last = max(self.last, outcome.seed)
        self.histories += 1
        self.wrong += bool(outcome.wrong)
        self.commands += outcome.commands
        self.takeovers += outcome.takeovers
        self.faults += outcome.faults

    def __str__(self) -> str:
        kinds = ", ".join(f"{kind} {count}" for kind, count in self.faults.most_common())
        return (
            f"{self.histories} histories checked (seeds {self.first} to {self.last}), {self.wrong} wrong: "
            f"{self.commands} commands, {self.takeovers} takeovers, {self.faults.total()} faults ({kinds})"
        )


def outcomes(seeds: range, jobs: int, fault: int | None = None) -> Iterator[Outcome]:
    """Yield the outcome of each seed, in no order with several processes."""
    batches = [(seeds[at : at + TOGETHER], fault) for at in range(0, len(seeds), TOGETHER)]
    if jobs == 1:
        for batch in batches:
            yield from _run(batch)
        return
    # Freeze imported objects, so that collections do not scan them after each history.
    with multiprocessing.get_context("spawn").Pool(jobs, initializer=gc.freeze) as pool:
        for done in pool.imap_unordered(_run_all, batches):
            yield from done


def found(seeds: range, jobs: int, fault: int) -> Iterator[Outcome]:
    """Yield the outcomes with a reintroduced fault, up to the first that fails because of it."""
    for outcome in outcomes(seeds, jobs, fault):
        if outcome.wrong and any(without.wrong for without in outcomes(range(outcome.seed, outcome.seed + 1), 1)):
            outcome.wrong = []
        yield outcome
        if outcome.wrong:
            return


def _run_all(batch: tuple[Iterable[int], int | None]) -> list[Outcome]:
    return list(_run(batch))


def _run(batch: tuple[Iterable[int], int | None]) -> Iterator[Outcome]:
    seeds, fault = batch
    for seed in seeds:
        with simulated(), REGRESSIONS[fault]():
            outcome = run(seed)
        yield outcome
