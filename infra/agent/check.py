"""Tries the sources of a file: what each one sends, how loud it is, and what the service hears in it."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Event
from typing import Final

import msgspec

from infra.agent.capture import RATE, Fault, Format, Heard, capture
from infra.agent.clock import Clock
from infra.agent.sources import Source, Sources
from infra.urls import redact_url

#: Seconds of each source.
SECONDS: Final = 5.0
#: Sources that are tried at once.
AT_ONCE: Final = 16
#: Sounds that are shown of each source.
SOUNDS: Final = 4
#: Seconds for the service to answer.
PATIENCE: Final = 30.0


class Finding(msgspec.Struct, frozen=True):
    """What a source sent, or why it sent nothing."""

    text: str
    pcm: bytes = b""
    works: bool = True


def report(sources: Sources, show: Callable[[str], object]) -> bool:
    """Show a line for each source, in order; return whether all of them work."""
    width = max(len(name) for name in sources.sources)
    works = True
    service = _Service(sources)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for source, found in zip(sources.sources.values(), pool.map(listen, sources.sources.values()), strict=True):
            works &= found.works
            heard = service.heard(source, found.pcm) if found.pcm else ""
            show(f"{source.name:{width}}  {found.text}{heard}")
    if service.fault:
        show(service.fault)
    return works


def listen(source: Source, seconds: float = SECONDS) -> Finding:
    """Listen to a source for some seconds."""
    if source.folder is not None:
        return _folder(Path(source.folder))
    forms: list[Format] = []
    blocks: list[Heard] = []
    stopped = Event()

    def take(heard: Heard) -> None:
        blocks.append(heard)
        if len(blocks) * len(heard.data) >= seconds * RATE * 2:
            stopped.set()

    fault = ""
    try:
        capture(source, Clock(), stopped, take, forms.append)
    except Fault as error:
        fault = str(error)
    if fault or not forms:
        return Finding(f"fails: {fault or 'no audio came'}", works=False)
    pcm = b"".join(heard.data for heard in blocks)
    silent = ", digital silence: the microphone may be off" if all(heard.silent for heard in blocks) else ""
    return Finding(f"{forms[-1]}, {level(pcm)}{silent}", pcm)


def _folder(folder: Path) -> Finding:
    if not os.access(folder, os.R_OK | os.X_OK) or not folder.is_dir():
        return Finding(f"fails: {folder} is not a folder that this user can read", works=False)
    return Finding(f"folder with {sum(one.is_file() for one in folder.iterdir())} files")


def level(pcm: bytes) -> str:
    """Return the level of 16-bit PCM: root mean square and peak in dBFS."""
    import numpy as np

    samples = np.frombuffer(pcm, "<i2").astype(np.float64) / 32768
    rms, peak = float(np.sqrt(np.mean(samples**2))), float(np.abs(samples).max())
    return f"{_dbfs(rms)} (peak {_dbfs(peak)})"


def _dbfs(value: float) -> str:
    return f"{20 * math.log10(value):.1f} dBFS" if value else "-inf dBFS"


class _Service:
    """Asks the service what it hears, until it fails once."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self.fault = ""

    def heard(self, source: Source, pcm: bytes) -> str:
        """Return the sounds in PCM, as text, from a session that is deleted at once."""
        from earshot_client import Client, EarshotClientError, SessionOptions
        from earshot_client import Event as Heard

        if self.fault:
            return ""
        best: dict[str, float] = {}
        kind = f"audio/x-raw; rate={RATE}; format=s16le"
        try:
            with Client(self._sources.url, self._sources.key) as client:
                options = SessionOptions("stream", kind, file_name=f"{source.name} (check)", model=source.model)
                with client.socket(options, timeout=PATIENCE) as socket:
                    try:
                        for event in socket.stream(pcm):
                            for tag in event.sounds if isinstance(event, Heard) else ():
                                best[tag.name] = max(best.get(tag.name, 0.0), tag.probability)
                    finally:
                        with suppress(EarshotClientError):
                            client.delete_session(socket.session_id)
        except EarshotClientError as error:
            self.fault = f"What is heard is unknown: the service at {redact_url(self._sources.url)} fails: {error}"
            return ""
        loudest = sorted(best.items(), key=lambda item: -item[1])[:SOUNDS]
        return ": " + (", ".join(f"{name} ({value:.2f})" for name, value in loudest) or "no sounds")
