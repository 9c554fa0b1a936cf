"""The browser of these tests, and what its microphone hears."""

import shutil
import tempfile
from pathlib import Path

import soundfile

#: A host name that leads to this machine, though browsers do not take it for this machine.
FARAWAY = "earshot.test"


def chromium() -> str | None:
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def arguments(heard: Path, directory: Path | None = None) -> list[str]:
    """Return arguments for a browser whose microphone hears a recording over and over."""
    samples, rate = soundfile.read(heard, dtype="int16")
    wav = (directory or Path(tempfile.mkdtemp())) / f"{heard.stem}.wav"
    soundfile.write(wav, samples, rate)
    return [
        "--no-sandbox",
        f"--host-resolver-rules=MAP {FARAWAY} 127.0.0.1",
        "--use-fake-device-for-media-stream",
        "--use-fake-ui-for-media-stream",
        f"--use-file-for-fake-audio-capture={wav}",
    ]
