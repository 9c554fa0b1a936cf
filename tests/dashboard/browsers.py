"""The browser of these tests, and its simulated microphone."""

import shutil
import tempfile
from pathlib import Path

import soundfile

#: A host name that resolves to this machine without being a trusted local name for browsers.
FARAWAY = "earshot.test"


def chromium() -> str | None:
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def arguments(heard: Path, directory: Path | None = None) -> list[str]:
    """Return arguments for a browser whose microphone plays a recording in a loop."""
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
