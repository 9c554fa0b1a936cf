"""Faults in sequence under load, then the checks: sessions, jobs, the ledger."""

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from tests.chaos.faults import FAULTS, plan
from tests.chaos.history import History, digest
from tests.chaos.load import SECONDS, SOUND, ChaosLoad
from tests.chaos.scene import ChaosScene
from tests.fencing.campaign import compare
from tests.fencing.load import PATIENCE_SECONDS
from tests.kafka_launcher.jars import LauncherError
from tests.recovery.load import Client, Stream
from tests.recovery.truth import Events
from tests.waiting import wait_for
from topics import keys

#: Limit for the ledger to have what ended last.
LEDGER_SECONDS = 60.0


@dataclass
class Report:
    """What a run found."""

    #: How often each fault struck, and the longest seconds until a client had its answer, of reads and of writes.
    counts: Counter[str] = field(default_factory=Counter)
    worst: dict[str, dict[str, float]] = field(default_factory=dict)
    chunks: int = 0
    #: Of each kept session: the digest of its windows, and the end of the last one in seconds.
    kept: dict[str, tuple[str, float]] = field(default_factory=dict)
    jobs: int = 0
    wrong: list[str] = field(default_factory=list)

    def table(self) -> Iterator[str]:
        yield f"{'fault':36}{'times':>6}{'worst read s':>14}{'worst write s':>15}"
        for kind, worst in self.worst.items():
            yield f"{kind:36}{self.counts[kind]:6}{worst['read']:14.1f}{worst['write']:15.1f}"
        yield f"{self.chunks} chunks of {len(self.kept)} kept sessions, {self.jobs} jobs, {len(self.wrong)} wrong"


class Campaign:
    """One run on a scene; its history tells what was, also if it fails."""

    def __init__(self, scene: ChaosScene, history: History, seed: int) -> None:
        self.report = Report()
        self._scene = scene
        self._history = history
        self._seed = seed
        self._load = ChaosLoad(scene.processes, seed, history)

    async def run(self, kinds: Collection[str], seconds: float = 0.0, faults: int = 0, chunks: int = 0) -> Report:
        """Strike as the seed says for as long and as often, and stream as many chunks; then check everything."""
        await self._load.prepare()
        self._load.start()
        until = time.monotonic() + seconds
        try:
            await self._load.turn()
            chosen = (fault for fault in plan(self._seed) if fault[1] in kinds)
            for struck, (number, kind, chance) in enumerate(chosen):
                if struck >= faults and time.monotonic() > until:
                    break
                self._history.take_worst()
                self._history.note("fault", kind=kind, number=number)
                print(f"{number:3} {kind}", flush=True)
                try:
                    await FAULTS[kind](self._scene, self._load, chance)
                except (AssertionError, LauncherError, TimeoutError) as error:
                    self._wrong([f"{kind}: {error!r}"])
                await self._scene.settle()
                self._history.note("settled", number=number)
                await self._check(kind)
            while self.report.chunks < chunks:
                await self._load.turn()
                await self._check("end")
        finally:
            await self._load.stop()
        await self._check("end")
        await self._check_all()
        return self.report

    async def _check(self, kind: str) -> None:
        """Compare the sessions that ended since the last fault."""
        ended, refused = self._load.take(), self._load.refused
        self._wrong(refused)
        refused.clear()
        self._wrong(await compare(self._scene.processes, ended, self._look_at))
        for session in ended.deleted:
            self._history.reads.pop(session, None)
        self.report.counts[kind] += 1
        worst, before = self._history.take_worst(), self.report.worst.get(kind, {})
        self.report.worst[kind] = {name: max(value, before.get(name, 0)) for name, value in worst.items()}

    def _wrong(self, lines: list[str]) -> None:
        for line in lines:
            print(f"    WRONG {line}", flush=True)
            self._history.note("wrong", line=line)
        self.report.wrong += lines

    def _look_at(self, stream: Stream, truth: Events) -> list[str]:
        self.report.chunks += len(stream.chunks)
        self.report.kept[stream.session] = digest(truth), truth[-1]["end_time"] if truth else 0.0
        return self._history.wrong_reads(stream, truth)

    async def _check_all(self) -> None:
        """Check all sessions and jobs again, on tables made from the log alone, and the ledger."""
        load, report = self._load, self.report
        report.jobs = len(load.accepted)
        self._wrong([f"job {job} was accepted and did not end" for job in load.accepted.keys() - load.completed])
        rebuilt = await asyncio.to_thread(self._scene.rebuild)
        async with Client(rebuilt, patience=PATIENCE_SECONDS) as client:
            for session, (expected, _) in report.kept.items():
                if digest(await client.events(session)) != expected:
                    self._wrong([f"{session} differs at the end"])
        await asyncio.to_thread(self._check_ledger)

    def _check_ledger(self) -> None:
        """Check that each kept session and each job was billed once, as a recount of the log says."""
        due = {("audio_session", keys.shown(session)): [end] for session, (_, end) in self.report.kept.items()}
        due |= {(SOUND, keys.shown(job)): [float(SECONDS[number])] for job, number in self._load.accepted.items()}
        node = self._scene.processes[0]

        def differences() -> list[str]:
            billed = defaultdict[tuple[str, str], list[float]](list)
            for line in node.operate("GET", "/usage", params={"lines": "true"}):
                billed[line["service"], line["job"]].append(line["audio_seconds"])
            return [
                f"{key} is billed {billed[key]} s, not {ends} s" for key, ends in due.items() if billed[key] != ends
            ]

        with suppress(AssertionError):
            wait_for(lambda: not differences(), LEDGER_SECONDS)
        self._wrong(differences())
        node.stop()
        try:
            node.command("usage", "--recount")
        except AssertionError as error:
            self._wrong([f"the ledger is not what a recount says: {error}"])
