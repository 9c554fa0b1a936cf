"""What clients were told and which faults there were: a file with a JSON object on each line."""

import hashlib
import time
from collections import defaultdict
from pathlib import Path
from typing import Any, Self

import httpx2
import msgspec
import orjson

from tests.process import ServiceProcess
from tests.recovery.load import Client, Stream
from tests.recovery.truth import Events

#: Windows of a read while a session is open.
WINDOWS = 8


def digest(value: object) -> str:
    return hashlib.sha256(orjson.dumps(value)).hexdigest()[:16]


class History:
    """The open file, and what the checks need of it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        #: Of each session, the first window and the windows of each read while it was open.
        self.reads: defaultdict[str, list[tuple[int, Events]]] = defaultdict(list)
        self._file = path.open("wb")
        self._began = time.monotonic()
        self._worst = dict.fromkeys(("read", "write"), 0.0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def note(self, what: str, **more: Any) -> None:
        """Write a line, with the seconds since the beginning."""
        line = {"at": round(time.monotonic() - self._began, 3), "what": what, **more}
        self._file.write(msgspec.json.encode(line) + b"\n")
        self._file.flush()

    def answered(self, method: str, path: str, answer: httpx2.Response, seconds: float, repeats: int) -> None:
        kind = "read" if method == "GET" else "write"
        self._worst[kind] = max(self._worst[kind], seconds)
        self.note(kind, method=method, path=path, status=answer.status_code, seconds=round(seconds, 3), repeats=repeats)

    def take_worst(self) -> dict[str, float]:
        """Return the longest seconds until a client had its answer since the last call, of reads and of writes."""
        worst, self._worst = self._worst, dict.fromkeys(self._worst, 0.0)
        return worst

    def wrong_reads(self, stream: Stream, truth: Events) -> list[str]:
        """Return a line for each read of an open session that showed anything else than the truth."""
        return [
            f"{stream.session}: a read from window {first} on showed something else"
            for first, events in self.reads.pop(stream.session, [])
            if events != truth[first : first + len(events)]
        ]


class RecordedClient(Client):
    """A client with a history, which also reads the sessions that it streams."""

    def __init__(self, history: History, *nodes: ServiceProcess, give_up: float, patience: float) -> None:
        super().__init__(*nodes, give_up=give_up, patience=patience)
        self._history = history

    async def ask(self, method: str, path: str, **more: object) -> httpx2.Response:
        began, repeats = time.monotonic(), self.repeats
        answer = await super().ask(method, path, **more)
        self._history.answered(method, path, answer, time.monotonic() - began, self.repeats - repeats)
        return answer

    async def put(self, stream: Stream, seed: int) -> None:
        """Upload a chunk; read the newest windows after every third."""
        await super().put(stream, seed)
        if len(stream.chunks) % 3:
            return
        first = max(0, len(stream.chunks) - WINDOWS)
        answer = await self.status(stream.session, offset=str(first), count=str(WINDOWS))
        assert answer.status_code == 200, f"an open session is gone: {answer.text}"
        events = answer.json()["inference"]["results"]
        self._history.reads[stream.session].append((first, events))
        self._history.note("seen", session=stream.session, first=first, windows=len(events), sha256=digest(events))
