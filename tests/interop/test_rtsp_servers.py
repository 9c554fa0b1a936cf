"""The agent and RTSP servers that are not ours, GStreamer's and mediamtx: codecs, a video beside audio, a password."""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pytest

from infra.agent.check import Finding, listen
from infra.agent.sources import Source
from tests.cameras import Camera, cameras
from tests.mediamtx import Mediamtx
from tests.ports import free_port
from tests.waiting import wait_for

#: Of Debian: gir1.2-gst-rtsp-server-1.0, gstreamer1.0-plugins-good and -bad, python3-gi.
IMPORTS: Final = """
import gi, sys
for name in ("Gst", "GstRtsp", "GstRtspServer"):
    gi.require_version(name, "1.0")
from gi.repository import GLib, Gst, GstRtsp, GstRtspServer
"""
SERVER: Final = (
    IMPORTS
    + """
Gst.init(None)
server = GstRtspServer.RTSPServer()
server.set_address("127.0.0.1")
server.set_service(sys.argv[1])
tone = "audiotestsrc is-live=true ! audio/x-raw,rate=%d,channels=%d !"
pipes = {
    "alaw": tone % (8000, 1) + " alawenc ! rtppcmapay name=pay0",
    "pcm": tone % (44100, 2) + " audioconvert ! rtpL16pay name=pay0",
    "opus": tone % (48000, 2) + " opusenc ! rtpopuspay name=pay0",
    "aac": tone % (16000, 1) + " voaacenc ! rtpmp4gpay name=pay0",
    "both": "videotestsrc is-live=true ! video/x-raw,width=64,height=64,framerate=5/1 ! vp8enc ! rtpvp8pay name=pay0 "
    + tone % (8000, 1) + " mulawenc ! rtppcmupay name=pay1",
}
for name, pipe in pipes.items():
    factory = GstRtspServer.RTSPMediaFactory()
    factory.set_launch("( " + pipe + " )")
    rights = GstRtspServer.RTSPPermissions()
    for right in "access", "construct":
        rights.add_permission_for_role("user", "media.factory." + right, True)
    factory.set_permissions(rights)
    server.get_mount_points().add_factory("/" + name, factory)
auth, token = GstRtspServer.RTSPAuth(), GstRtspServer.RTSPToken()
token.set_string("media.factory.role", "user")
auth.set_supported_methods(GstRtsp.RTSPAuthMethod.DIGEST)
auth.add_digest("admin", "s3cret", token)
server.set_auth(auth)
server.attach(None)
print("ready", flush=True)
GLib.MainLoop().run()
"""
)
PYTHON: Final = "/usr/bin/python3"


def missing() -> str:
    """Return why there is no server, "" if there is one."""
    if shutil.which(PYTHON) is None:
        return f"there is no {PYTHON}"
    tried = subprocess.run([PYTHON, "-c", IMPORTS], capture_output=True, text=True)
    return tried.stderr.strip().rpartition("\n")[2] if tried.returncode else ""


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """Yield the beginning of URLs."""
    if reason := missing():
        pytest.skip(f"GStreamer's RTSP server is not here: {reason}")
    port = free_port()
    with subprocess.Popen([PYTHON, "-c", SERVER, str(port)], stdout=subprocess.PIPE, stderr=sys.stderr) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield f"rtsp://admin:s3cret@127.0.0.1:{port}/"
        process.kill()


def found(url: str) -> Finding:
    return listen(Source("camera", url=url), 1.0)


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("alaw", "pcm_alaw, 8000 Hz, mono"),
        ("pcm", "pcm_s16be, 44100 Hz, stereo"),
        ("opus", "opus, 48000 Hz, stereo"),
        ("aac", "aac, 16000 Hz, mono"),
        ("both", "pcm_mulaw, 8000 Hz, mono"),
    ],
)
def test_audio_is_heard(server: str, name: str, form: str) -> None:
    heard = found(server + name)
    assert heard.text.startswith(f"{form}, -4.9 dBFS") or heard.text.startswith(f"{form}, -5."), heard.text


def test_refusals_are_named(server: str) -> None:
    assert found(server.replace("s3cret", "wrong") + "alaw").text == "fails: wrong user name or password"
    assert found(server + "none").text == "fails: there is no such stream: check the path in the URL"


def test_cameras_are_heard_through_mediamtx(tmp_path: Path) -> None:
    forms = {
        "l16": "pcm_s16be, 44100 Hz, mono",
        "pcma": "pcm_alaw, 8000 Hz, mono",
        "pcmu": "pcm_mulaw, 8000 Hz, mono",
        "opus": "opus, 48000 Hz, stereo",
        "aac": "aac, 16000 Hz, mono",
    }
    with cameras() as served:
        urls = {name: served.add(name, Camera(name, int(form.split()[1]))) for name, form in forms.items()}
        with Mediamtx(tmp_path, urls, "s3cret", build=False) as server, ThreadPoolExecutor() as pool:
            wait_for(lambda: all(camera.sent and camera.sent[-1].count for camera in served.cameras.values()))
            texts = [one.text for one in pool.map(found, [server.url + name for name in (*forms, "none")])]
            assert found(server.url.replace("s3cret", "wrong") + "aac").text == "fails: wrong user name or password"
    assert texts.pop() == "fails: it refuses the request: check the path in the URL"
    for form, text in zip(forms.values(), texts, strict=True):
        # Higher rates have some of the noise above what the agent keeps.
        assert re.match(rf"{form}, -(16|17|21|22)\.", text), text
