"""Acknowledged voices are kept and removed ones are gone, across kills."""

import random
import sqlite3
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial

import httpx2
import pytest

from tests.contract.speakers import Speakers, data, voice
from tests.lengths import SEED, length
from tests.process import ORG_KEY, ServiceProcess
from tests.recordings import ANNA, BERT
from tests.recovery.conftest import ON_EMBEDDED
from tests.stub_engines import StubEngines
from tests.waiting import wait_for

KILLS = length("KILLS", 2)
#: Successful requests before each kill.
STEPS = 12
CLIENTS = 4

pytestmark = [ON_EMBEDDED, pytest.mark.slow, pytest.mark.timeout(300 + 20 * KILLS)]


@pytest.fixture
def settings(engines: StubEngines) -> dict[str, str]:
    return {"model": "sed-mini", "keep_voice": "true", **engines.settings}


class Customer:
    """Registers and removes its own speakers, and tracks which must and which may exist."""

    def __init__(self, service: ServiceProcess, number: int) -> None:
        self._service = service
        self._number = number
        self._chance = random.Random(SEED + number)
        self._audio = [voice(reader, 1.0, 2.0) for reader in (ANNA, BERT)]
        #: Samples of each speaker: at least those acknowledged, at most those sent.
        self.least: dict[str, int] = {}
        self.most: dict[str, int] = {}
        self.answers: Counter[int] = Counter()

    def work(self, done: threading.Event) -> None:
        with Speakers(self._service, ORG_KEY) as api:
            while not done.is_set():
                try:
                    self._step(api)
                except httpx2.TransportError:
                    time.sleep(0.2)

    def _step(self, api: Speakers) -> None:
        name = f"speaker_{self._number}_{self._chance.randrange(4)}"
        if self._chance.random() < 0.3:
            self.least[name] = 0
            if self._succeeded(api.remove(name)):
                self.most[name] = 0
        elif self.most.get(name, 0) < 20:
            self.most[name] = self.most.get(name, 0) + 1
            if self._succeeded(api.add(name, self._chance.choice(self._audio))):
                self.least[name] = self.least.get(name, 0) + 1

    def _succeeded(self, answer: httpx2.Response) -> bool:
        self.answers[answer.status_code] += 1
        if answer.status_code != 200:
            time.sleep(0.1)
        return answer.status_code == 200


def succeeded(customers: list[Customer]) -> int:
    return sum(customer.answers[200] for customer in customers)


def reached(customers: list[Customer], number: int) -> bool:
    return succeeded(customers) >= number


def test_acknowledged_speaker_changes_survive_kills(victim: ServiceProcess) -> None:
    customers = [Customer(victim, number) for number in range(CLIENTS)]
    chance = random.Random(SEED)
    done = threading.Event()
    with ThreadPoolExecutor(CLIENTS) as pool:
        working = [pool.submit(customer.work, done) for customer in customers]
        try:
            for _ in range(KILLS):
                wait_for(partial(reached, customers, succeeded(customers) + STEPS), 60)
                time.sleep(chance.uniform(0.0, 0.2))
                victim.kill()
                victim.start()
        finally:
            done.set()
        for one in working:
            one.result(60)
    with Speakers(victim, ORG_KEY) as api:
        there = {entry["speaker"]: entry["samples"] for entry in data(api.listed())}
    answers = sum((customer.answers for customer in customers), Counter())
    print(f"seed {SEED}: {sum(there.values())} samples of {len(there)} speakers; answers {dict(answers)}")
    assert there
    for customer in customers:
        for name, most in customer.most.items():
            assert customer.least.get(name, 0) <= there.get(name, 0) <= most, (SEED, name)
    assert there.keys() <= {name for customer in customers for name in customer.most}
    files_follow(victim)


def files_follow(victim: ServiceProcess) -> None:
    """Check that each sample has its voice file, and that no other file remains once pending deletions are due."""
    victim.kill()
    with closing(sqlite3.connect(victim.data / "earshot.db")) as database:
        kept = {voice for (voice,) in database.execute("SELECT voice FROM samples")}
        noted = {voice for (voice,) in database.execute("SELECT voice FROM discards")}
        assert kept <= files(victim)
        assert files(victim) - kept <= noted
        assert not kept & noted
        database.execute("UPDATE discards SET due_at = 0")
        database.commit()
    victim.start()
    wait_for(lambda: files(victim) == kept)


def files(victim: ServiceProcess) -> set[str]:
    """Return the names of the voice files, including partial ones."""
    folder = victim.data / "voices"
    found = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return {str(path.with_name(path.name.removeprefix(".").removesuffix(".part"))) for path in found}
