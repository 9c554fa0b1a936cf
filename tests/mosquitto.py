"""An MQTT broker of the tests: mosquitto, from the system's package."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.ports import free_port, listens
from tests.waiting import wait_for


class Mosquitto:
    """A broker that may be stopped and started again at its port; retained messages are gone then."""

    def __init__(self, directory: Path, *, users: dict[str, str] | None = None, tls: bool = False) -> None:
        """Ask for one of `users`; with `tls`, use `host.pem` and `key.pem` of the directory. Skip without mosquitto."""
        path = f"{os.environ['PATH']}:/usr/sbin"
        program = shutil.which("mosquitto", path=path)
        if program is None:
            pytest.skip("there is no mosquitto here")
        self.port = free_port()
        self._log = directory / "log"
        lines = ["user root", "persistence false", "max_inflight_messages 0", f"listener {self.port} 127.0.0.1"]
        if users is None:
            lines.append("allow_anonymous true")
        else:
            passwords = directory / "passwords"
            passwords.touch()
            tool = shutil.which("mosquitto_passwd", path=path)
            assert tool is not None
            for name, password in users.items():
                subprocess.run([tool, "-b", passwords, name, password], check=True, capture_output=True)
            lines.append(f"password_file {passwords}")
        if tls:
            lines += [f"certfile {directory / 'host.pem'}", f"keyfile {directory / 'key.pem'}"]
        configuration = directory / "configuration"
        configuration.write_text("\n".join(lines))
        self._command = [program, "-c", str(configuration)]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(self._command, stdout=output, stderr=output)
        wait_for(self._listens)

    def stop(self, kill: bool = False) -> None:
        if self._process is not None:
            self._process.kill() if kill else self._process.terminate()
            self._process.wait(60)
            self._process = None

    def __enter__(self) -> Mosquitto:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def _listens(self) -> bool:
        assert self._process is not None
        return listens(self._process, self.port, self._log)
