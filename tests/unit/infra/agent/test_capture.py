"""Captures cameras: what is heard and when it was captured, and why a source cannot be heard."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from infra.agent import capture as capturing
from infra.agent.capture import BLOCK_BYTES, NO_SOUND_CARD, Fault, Format, Heard, capture
from infra.agent.check import level, listen
from infra.agent.clock import Clock
from infra.agent.sources import Source
from tests.cameras import Camera, Cameras, cameras, noise, silence
from tests.ports import free_port
from tests.waiting import wait_for

#: Seconds by which a capture time may be off; `test_clock.py` knows better. A busy machine may send and read late: then
#: it tries again.
MOST_OFF = 0.25
TRIES = 6


@pytest.fixture(scope="module")
def served() -> Iterator[Cameras]:
    with cameras() as them:
        yield them


def heard(source: Source, seconds: float) -> tuple[list[Heard], list[Format]]:
    """Capture for some seconds of audio."""
    stopped, blocks, forms = threading.Event(), list[Heard](), list[Format]()

    def take(block: Heard) -> None:
        blocks.append(block)
        if len(blocks) * 0.5 >= seconds:
            stopped.set()

    capture(source, Clock(), stopped, take, forms.append)
    return blocks, forms


def off(blocks: list[Heard], camera: Camera) -> float:
    """Return by how many seconds the capture times of a camera's last connection are off, at most."""
    return max(abs(block.at_ms / 1000 - camera.sent[-1].began - number / 2) for number, block in enumerate(blocks))


def test_samples_are_those_of_the_camera_and_only_its_audio_is_asked_for(served: Cameras) -> None:
    camera = Camera("l16", 16000, password="s3cret")
    source = Source("barn", url=served.add("barn", camera))
    blocks, forms = heard(source, 1.5)
    assert forms == [Format("pcm_s16be", 16000, 1)]
    assert camera.tracks == ["audio"]
    pcm = np.frombuffer(b"".join(block.data for block in blocks), "<i2")
    assert np.array_equal(pcm, noise(camera.sent[0].first, len(pcm), 16000))
    assert [len(block.data) for block in blocks[:3]] == [BLOCK_BYTES] * 3
    assert not any(block.silent for block in blocks)
    assert off(blocks, camera) < MOST_OFF or any(off(heard(source, 1.5)[0], camera) < MOST_OFF for _ in range(TRIES))


def test_clock_that_is_set_back_cuts_no_connection(served: Cameras) -> None:
    camera = Camera()
    url = served.add("setback", camera)

    def times() -> list[float]:
        set_back, blocks, stopped, before = 0, list[Heard](), threading.Event(), len(camera.sent)

        def take(block: Heard) -> None:
            nonlocal set_back
            blocks.append(block)
            set_back = 3600
            if len(blocks) == 3:
                stopped.set()

        capture(Source("x", url=url), Clock(lambda: time.time() - set_back), stopped, take, lambda form: None)
        (sent,) = camera.sent[before:]
        return [block.at_ms / 1000 - sent.began for block in blocks]

    assert any(times() == pytest.approx([0.0, -3599.5, -3599.0], abs=MOST_OFF) for _ in range(TRIES))


@pytest.mark.parametrize(("codec", "rate", "burst"), [("aac", 48000, 1.5), ("pcma", 8000, 0.0), ("opus", 48000, 0.0)])
def test_codecs_and_bursts(served: Cameras, codec: str, rate: int, burst: float) -> None:
    camera = Camera(codec, rate, burst=burst, digest=False, password="a:b/c")
    url = served.add(codec, camera).replace("a:b/c", "a%3Ab%2Fc")
    assert any(off(heard(Source("x", url=url), 2)[0], camera) < MOST_OFF for _ in range(TRIES))


def test_digital_silence(served: Cameras) -> None:
    blocks, _ = heard(Source("x", url=served.add("silent", Camera("pcma", 8000, silence))), 1)
    assert all(block.silent for block in blocks)


def why(source: Source) -> str:
    with pytest.raises(Fault) as fault:
        capture(source, Clock(), threading.Event(), lambda block: None, lambda form: None)
    assert "s3cret" not in str(fault.value)
    return str(fault.value)


def test_why_a_source_cannot_be_heard(served: Cameras, monkeypatch: pytest.MonkeyPatch) -> None:
    right = served.add("locked", Camera(password="s3cret"))
    nowhere = free_port()
    assert why(Source("x", url=right.replace("s3cret", "s3cret2"))) == "wrong user name or password"
    assert why(Source("x", url=right.replace("locked", "none"))).startswith("there is no such stream")
    assert why(Source("x", url="rtsp://u:s3cret@no-such-host.invalid/a")) == "unknown host no-such-host.invalid"
    assert why(Source("x", url="rtsp://u:s3cret@a..b/a")) == "unknown host a..b"
    refused = why(Source("x", url=f"rtsp://u:s3cret@127.0.0.1:{nowhere}/a"))
    assert refused == f"nothing listens at rtsp://127.0.0.1:{nowhere}"
    mute = served.add("mute", Camera(audio=False))
    assert why(Source("x", url=mute)) == "it has no audio track: switch the audio on in the camera"
    assert "no decoder" in why(Source("x", url=served.add("odd", Camera("odd", 8000))))
    monkeypatch.setattr(capturing, "OPEN_SECONDS", 0.5)
    monkeypatch.setattr(capturing, "READ_SECONDS", 0.5)
    began = time.monotonic()
    assert why(Source("x", url=served.add("stalled", Camera(stalled=True)))).startswith("no answer or no audio from")
    assert time.monotonic() - began < 9, "FFmpeg's time-out is the shorter one"
    assert why(Source("x", microphone="nosuchdevice")) == NO_SOUND_CARD


@pytest.mark.parametrize("burst", [0.0, 1.0])
def test_a_connection_that_is_cut_keeps_what_came(served: Cameras, burst: float) -> None:
    camera, blocks = Camera(burst=burst), list[Heard]()
    url = served.add("cut", camera)

    def cut() -> None:
        wait_for(lambda: camera.sent and camera.sent[0].count > max(0.8, burst) * 16000)
        served.kill(camera)

    threading.Thread(target=cut).start()
    with pytest.raises(Fault, match="the stream ended"):
        capture(Source("x", url=url), Clock(), threading.Event(), blocks.append, lambda form: None)
    assert sum(len(block.data) for block in blocks) == camera.sent[0].count * 2


def test_microphone(tmp_path: Path) -> None:
    """A device of ALSA that reads a file, in a process of its own, because ALSA reads its configuration once."""
    (tmp_path / "audio.raw").write_bytes(noise(0, 200_000, 48000).tobytes())
    (tmp_path / "asound.conf").write_text(
        f"pcm.test {{ type file slave.pcm {{ type null }} file /dev/null infile {tmp_path}/audio.raw format raw }}"
    )
    # ALSA's null device gives one sample at a time, which is slower than a clock on a busy machine.
    code = (
        "from infra.agent import capture; capture.DRIFT = 60.0; "
        "from infra.agent.check import listen; from infra.agent.sources import Source; "
        "print(listen(Source('x', microphone='test'), 0.5).text)"
    )
    import subprocess
    import sys

    environment = {**os.environ, "ALSA_CONFIG_PATH": str(tmp_path / "asound.conf")}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120)
    assert done.stdout.startswith("pcm_s16le, 48000 Hz, mono, "), done.stdout + done.stderr


def test_check(served: Cameras, tmp_path: Path) -> None:
    found = listen(Source("x", url=served.add("check", Camera())), 0.5)
    assert found.works
    assert found.text.startswith("pcm_s16be, 16000 Hz, mono, -16.")
    silent = listen(Source("x", url=served.add("still", Camera(samples=silence))), 0.5)
    assert silent.text.endswith("-inf dBFS (peak -inf dBFS), digital silence: the microphone may be off")
    assert listen(Source("x", url="rtsp://127.0.0.1:1/a")).text == "fails: nothing listens at rtsp://127.0.0.1:1"
    assert not listen(Source("x", folder=str(tmp_path / "none"))).works
    (tmp_path / "a.wav").touch()
    assert listen(Source("x", folder=str(tmp_path))).text == "folder with 1 files"


def test_level() -> None:
    square = (np.array([16384, -16384] * 100)).astype("<i2").tobytes()
    assert level(square) == "-6.0 dBFS (peak -6.0 dBFS)"
