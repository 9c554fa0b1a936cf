"""`earshot agent` as a process of its own."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any


class Agent:
    """An agent that streams cameras to a service."""

    def __init__(self, directory: Path, service: str, urls: dict[str, str], key: str = "key-of-a-project") -> None:
        self.file, self.log = directory / "sources.toml", directory / "agent.log"
        self.spool = directory / "spool"
        (directory / "key").write_text(key)
        text = f'url = "{service}"\nkey_file = "key"\n[defaults.labels]\nsite = "farm"\n'
        self.file.write_text(text + "".join(f'[[sources]]\nname = "{name}"\nurl = "{urls[name]}"\n' for name in urls))
        self.file.chmod(0o600)
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as log:
            command = [sys.executable, "-m", "infra.cli", "agent", "run", "--json", str(self.file)]
            self.process = subprocess.Popen(command, stdout=log, stderr=log)

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """Stop it cleanly; it must not have ended before."""
        assert self.process is not None
        assert self.process.poll() is None, self.log.read_text()
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(60) == 0

    def lines(self, event: str = "") -> list[dict[str, Any]]:
        found = [json.loads(line) for line in self.log.read_text().splitlines()]
        return [line for line in found if event in ("", line["event"])]

    def files(self) -> list[Path]:
        return list(self.spool.rglob("*.flac"))
