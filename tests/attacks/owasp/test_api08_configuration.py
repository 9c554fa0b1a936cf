"""API8, security misconfiguration: open defaults, information in errors and headers, and HTTP parsing."""

import socket
import stat

import pytest

from tests.attacks.owasp.conftest import Target
from tests.contract.api import Api
from tests.contract.jobs import Jobs
from tests.process import ask, living

TELLING = ("Traceback", ".py", "site-packages", "sqlite", "starlette", "uvicorn", "python", "/home", "/root", "/tmp")


def sent(target: Target, request: bytes) -> bytes:
    """Send bytes; return the complete answer."""
    with socket.create_connection(("127.0.0.1", target.service.port), 120) as link:
        link.sendall(request)
        link.shutdown(socket.SHUT_WR)
        answer = b""
        while data := link.recv(65536):
            answer += data
    return answer


def test_errors_show_no_internals(target: Target, api: Api, jobs: Jobs) -> None:
    answers = [
        ask("GET", f"{target.url}/nothing"),
        ask("GET", f"{target.url}/api/v1/nothing"),
        ask("GET", f"{target.url}/api/v2/nothing"),
        ask("GET", f"{target.url}/audio_sessions/%00/status"),
        ask("GET", f"{target.url}/audio_sessions/..%2f..%2fetc%2fpasswd/status"),
        api.post(b"\x00".decode()),
        jobs.file(b"no audio"),
        jobs.file(b"", "{"),
        ask("POST", f"{target.url}/api/v2/voice", headers={"X-Org-Key": target.alice.org_key}),
    ]
    # The contract answers 500 to a damaged recording, and 200 to a voice without a file.
    assert [answer.status_code for answer in answers] == [404, 404, 404, 404, 404, 400, 500, 422, 200]
    for answer in answers:
        told = (answer.text + str(answer.headers)).lower()
        assert not [word for word in TELLING if word.lower() in told], told


def test_response_headers_hide_server_and_forbid_cors(target: Target) -> None:
    answer = ask("GET", f"{target.url}/", headers={"Origin": "http://evil.example", "X-Request-Id": "a b\tc"})
    assert "server" not in answer.headers
    assert "x-powered-by" not in answer.headers
    assert "access-control-allow-origin" not in answer.headers, "no page of another site reads answers"
    refused = ask("GET", f"{target.url}/nothing", headers={b"X-Request-Id": b'1\xff"; drop'})
    assert '"' not in refused.headers.get("x-request-id", "")


@pytest.mark.parametrize(
    "head",
    [
        b"POST /audio_sessions/ HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nContent-Length: 40\r\n\r\nabcd",
        b"POST /audio_sessions/ HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"0\r\n\r\nGET /admin HTTP/1.1\r\n\r\n",
        b"POST /audio_sessions/ HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\nabc\r\n0\r\n\r\n",
        b"POST /audio_sessions/ HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\n X-Folded: 1\r\n\r\n",
        b"GET /\x00 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET / HTTP/9.9\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ],
)  # fmt: skip
def test_ambiguous_requests_are_not_smuggled(target: Target, head: bytes) -> None:
    answer = sent(target, head)
    assert answer.count(b"HTTP/1.1 ") <= 1, "one request, or none"
    assert not answer or answer.split()[1] in (b"400", b"401", b"404"), answer
    target.well()


def test_root_ignores_websocket_upgrade(target: Target) -> None:
    headers = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Key": "eA==",
        "Sec-WebSocket-Version": "13",
    }
    assert ask("GET", f"{target.url}/", headers=headers).status_code == 200


def test_data_files_are_private_to_owner(target: Target) -> None:
    for path in (target.service.data, *target.service.data.rglob("*")):
        assert not stat.S_IMODE(path.lstat().st_mode) & 0o077, path


def test_process_command_lines_contain_no_keys(target: Target) -> None:
    import psutil

    process = target.service.process
    assert process is not None
    for one in [psutil.Process(process.pid), *living(psutil.Process(process.pid), recursive=True)]:
        line = " ".join(one.cmdline())
        assert not [key for key in (target.alice.key, target.alice.org_key) if key in line]
