"""Live sockets and event streams through the reverse proxies configured in `docs/running.md`."""

import asyncio
import json
import os
import shutil
import ssl
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

import httpx2
import pytest
from websockets.asyncio.client import connect

from tests.conftest import ROOT
from tests.contract.api import RAW, tone
from tests.documentation.pages import read
from tests.ports import free_port
from tests.process import ADMIN_KEY, KEY, ServiceProcess
from tests.unit.app.sessions.sockets import END, HALF, MAKING, PROTOCOL, Line
from tests.waiting import wait_for

pytestmark = pytest.mark.slow

HOST: Final = "sound.example.org"
#: Seconds of silence after which the service, and the proxies here, close a socket. The service pings every two.
IDLE: Final = 10
PROXY_IDLE: Final = 10
NGINX: Final = """\
daemon off;
pid nginx.pid;
error_log stderr;
events {{}}
http {{
    access_log off;
    client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fast; uwsgi_temp_path u; scgi_temp_path s;
    {block}
}}
"""
CADDY: Final = """\
{{
    admin off
    auto_https disable_redirects
    storage file_system {{
        root .
    }}
}}
{block}
"""
COMMANDS: Final = {
    "nginx": (NGINX, ("nginx", "-p", ".", "-e", "stderr", "-c", "configuration")),
    "caddy": (CADDY, ("caddy", "run", "--config", "configuration", "--adapter", "caddyfile")),
}


class Proxy:
    def __init__(self, port: int, trusted: ssl.SSLContext) -> None:
        self.port = port
        self.trusted = trusted
        self.http = httpx2.Client(
            base_url=f"https://127.0.0.1:{port}",
            verify=trusted,
            headers={"Host": f"{HOST}:{port}", "X-Api-Key": KEY},
            timeout=60,
            trust_env=False,
        )

    def socket(self, path: str) -> connect:
        """Open a socket as a page of the proxy's own origin does."""
        return connect(
            f"wss://{HOST}:{self.port}{path}",
            host="127.0.0.1",
            ssl=self.trusted,
            subprotocols=[PROTOCOL],  # type: ignore[list-item]
            additional_headers={"X-Api-Key": KEY},
            origin=f"https://{HOST}:{self.port}",  # type: ignore[arg-type]
            proxy=None,
            max_size=None,
            open_timeout=60,
        )


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    directory = tmp_path_factory.mktemp("service")
    with ServiceProcess(directory / "data", upload_idle_seconds=IDLE, trusted_proxies=1) as service:
        yield service


@pytest.fixture(scope="module", params=COMMANDS)
def proxy(
    request: pytest.FixtureRequest, service: ServiceProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Proxy]:
    frame, command = COMMANDS[request.param]
    for program in (command[0], "openssl"):
        if shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin") is None:
            pytest.skip(f"there is no {program} here")
    directory = tmp_path_factory.mktemp(request.param)
    certificate = directory / "certificate.pem"
    subprocess.run(
        f"openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -keyout key.pem -out "
        f"{certificate} -subj /CN={HOST} -addext subjectAltName=DNS:{HOST}".split(),
        cwd=directory,
        check=True,
        capture_output=True,
    )
    port, away = free_port(), free_port()
    (directory / "configuration").write_text(frame.format(block=documented(request.param, port, service.port, away)))
    log = directory / "log"
    environment = {**os.environ, "PATH": f"{os.environ['PATH']}:/usr/sbin", "HOME": str(directory)}
    with log.open("wb") as output:
        process = subprocess.Popen(command, cwd=directory, stdout=output, stderr=output, env=environment)
    trusted = ssl.create_default_context(cafile=certificate)
    try:
        proxy = Proxy(port, trusted)
        wait_for(lambda: process.poll() is not None or is_ready(proxy))
        assert process.poll() is None, log.read_text()
        yield proxy
        proxy.http.close()
    finally:
        process.terminate()
        process.wait(60)


def documented(language: str, port: int, upstream: int, away: int) -> str:
    """Return the page's configuration with a port, a certificate and timeouts of this test, and a node that is away."""
    [text] = [one.text for one in read(ROOT / "docs/running.md").blocks() if one.language == language]
    changes = {
        "listen 443 ssl": f"listen 127.0.0.1:{port} ssl",
        f"/etc/letsencrypt/live/{HOST}/fullchain.pem": "certificate.pem",
        f"/etc/letsencrypt/live/{HOST}/privkey.pem": "key.pem",
        f"{HOST} {{": f"{HOST}:{port} {{\n    bind 127.0.0.1\n    tls certificate.pem key.pem",
        "    server 127.0.0.1:8000": f"    server 127.0.0.1:{away};\n    server 127.0.0.1:{upstream}",
        " 127.0.0.1:8000 {": f" 127.0.0.1:{away} 127.0.0.1:{upstream} {{",
        "300s": f"{PROXY_IDLE}s",
    }
    for before, after in changes.items():
        text = text.replace(before, after)
    assert "/etc/" not in text
    assert "8000" not in text
    return text


def is_ready(proxy: Proxy) -> bool:
    with suppress(httpx2.TransportError):
        return proxy.http.get("/readyz", extensions={"sni_hostname": HOST}).status_code == 200
    return False


async def test_proxy_passes_audio_and_events(proxy: Proxy) -> None:
    async with proxy.socket(MAKING) as socket:
        line = Line(socket)
        hello = await line.next()
        await socket.send(HALF)
        await socket.send(HALF)
        assert (await line.next_of("window"))["window"] == 0, "it is not held back"
        await socket.send(bytes(hello["limits"]["frame_bytes"]))
        await socket.send(END)
        messages = await line.rest()
        assert [one["next_chunk"] for one in messages if one["type"] == "ack"][-1:] == [3]
        assert messages[-1]["type"] == "end"
        assert await line.code() == 1000


async def test_idle_socket_stays_open(proxy: Proxy) -> None:
    """Longer than the timeouts of proxy and service: pings and pongs pass."""
    async with proxy.socket(f"{MAKING}&events=none") as socket:
        line = Line(socket)
        await line.next()
        await asyncio.sleep(2 + max(IDLE, PROXY_IDLE))
        await socket.send(HALF)
        assert (await line.next())["next_chunk"] == 1


async def test_close_codes_pass_through_proxy(proxy: Proxy) -> None:
    async with proxy.socket("/audio_sessions/0123456789abcdefghijABCD/socket") as socket:
        line = Line(socket)
        assert (await line.next())["status_code"] == 404
        assert await line.code() == 4404
    async with proxy.socket(MAKING) as socket:
        line = Line(socket)
        limit = (await line.next())["limits"]["frame_bytes"]
        await socket.send(bytes(limit + 1))
        assert (await line.next())["status_code"] == 413
        assert await line.code() == 1009


def test_session_events_are_not_buffered(proxy: Proxy) -> None:
    sni = {"sni_hostname": HOST}
    wanted = {"content_type": RAW, "type": "stream"}
    made = proxy.http.post("/audio_sessions/", json=wanted, extensions=sni)
    session = made.json()["session_id"]
    with proxy.http.stream("GET", f"/audio_sessions/{session}/live?from=0", extensions=sni) as answer:
        lines = answer.iter_lines()
        assert next(lines) == "event: session"

        async def send() -> None:
            async with proxy.socket(f"/audio_sessions/{session}/socket") as socket:
                line = Line(socket)
                await line.next()
                await socket.send(tone(1.0))
                await line.next_of("window")

        asyncio.run(send())
        data = next(line for line in lines if line.startswith("data: ") and '"window":' in line)
        assert json.loads(data.removeprefix("data: "))["window"] == 0


def test_operator_paths_are_not_exposed(proxy: Proxy) -> None:
    for path in (
        "/admin/v1/projects",
        "/metrics",
        "/ADMIN/v1/usage",
        "//admin/v1/usage",
        "/./admin/v1/usage",
        "/api/../admin/v1/usage",
        "/api/v1/..%2f..%2fadmin/v1/usage",
        "/%61dmin/v1/usage",
        "/admin%2fv1/usage",
        "/admin/v1/usage;x=1",
        "/admin/v1/usage/..",
        "/admin/v1/usage\\",
    ):
        target = {"sni_hostname": HOST, "target": path.encode()}
        answer = proxy.http.get("/", headers={"Authorization": f"Bearer {ADMIN_KEY}"}, extensions=target)
        assert answer.status_code in (400, 404), path


def test_service_that_ends_in_a_request_is_a_refusal_with_a_time(proxy: Proxy, service: ServiceProcess) -> None:
    def body() -> Iterator[bytes]:
        yield b'{"data": "'
        time.sleep(0.5)
        service.kill()
        yield b'"}'

    sni = {"sni_hostname": HOST}
    made = proxy.http.post("/audio_sessions/", json={"content_type": RAW, "type": "stream"}, extensions=sni)
    chunk = f"/audio_sessions/{made.json()['session_id']}/chunks/0"
    try:
        for method, content in (("PUT", body()), ("GET", None), ("PUT", b"{}")):
            answer = proxy.http.request(method, chunk, content=content, extensions=sni)
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
            assert answer.headers["content-type"] == "application/json"
            assert answer.json()["status_code"] == 503
    finally:
        service.start()
    wait_for(lambda: is_ready(proxy))
