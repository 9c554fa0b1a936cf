"""Nodes that reach each other by TLS, with certificates of one authority: requests and sockets are forwarded.

They send traces too, so that a trace is seen to cross nodes.
"""

import base64
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.nodes import Pair, Settings, service_nodes, start
from tests.collector import Collector, collecting
from tests.conftest import ENGINE_KEY
from tests.contract.speech import spoken
from tests.ports import free_port
from tests.process import ADMIN_KEY, KEY, ORG_KEY, ServiceProcess
from tests.recovery.load import Client, half_second
from tests.stub_engines import WORDS, StubEngines
from tests.unit.app.sessions.sockets import line_at
from tests.waiting import until, wait_for
from topics.catalog import COMMANDS
from topics.keys import shown

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

EC = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes"


def openssl(directory: Path, command: str) -> None:
    subprocess.run(["openssl", *command.split()], cwd=directory, check=True, capture_output=True)


def authority(directory: Path, name: str) -> Path:
    """Make an authority, with which `certificate` signs."""
    openssl(directory, f"req -x509 {EC} -days 2 -subj /CN={name} -keyout {name}.key -out {name}.pem")
    (directory / f"{name}.index").touch()
    (directory / f"{name}.cnf").write_text(
        f"[ca]\ndefault_ca=own\n[own]\ndatabase={name}.index\nnew_certs_dir=.\nrand_serial=yes\ndefault_md=sha256\n"
        "policy=any\nx509_extensions=names\n[any]\ncommonName=supplied\n[names]\nsubjectAltName=IP:127.0.0.1\n"
    )
    return directory / f"{name}.pem"


def certificate(directory: Path, by: str, name: str, end: str = "491231000000Z") -> dict[str, str]:
    """Return the settings of a certificate for 127.0.0.1 that an authority has signed."""
    openssl(directory, f"req {EC} -subj /CN={name} -keyout {name}.key -out {name}.csr")
    dates = f"-startdate 200101000000Z -enddate {end}"
    signed = f"-config {by}.cnf -cert {by}.pem -keyfile {by}.key -in {name}.csr -out {name}.pem"
    openssl(directory, f"ca -batch -notext {dates} {signed}")
    return {"node_certificate": str(directory / f"{name}.pem"), "node_key": str(directory / f"{name}.key")}


def address() -> dict[str, str]:
    port = free_port()
    return {"node_listen": f"127.0.0.1:{port}", "advertise": f"https://127.0.0.1:{port}"}


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("certificates")
    authority(directory, "own")
    authority(directory, "other")
    return directory


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with collecting() as collector:
        yield collector


@pytest.fixture(scope="module")
def settings(certificates: Path) -> tuple[Settings, Settings]:
    one, two = (certificate(certificates, "own", name) | address() for name in ("one", "two"))
    return one, two


@pytest.fixture(scope="module")
def pair(
    settings: tuple[Settings, Settings],
    certificates: Path,
    collector: Collector,
    engines: StubEngines,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Pair]:
    ca, directory = str(certificates / "own.pem"), tmp_path_factory.mktemp("nodes")
    each = ({**own, **engines.settings} for own in settings)
    with service_nodes(directory, *each, node_ca=ca, speech_key=ENGINE_KEY) as (one, two):
        for node in one, two:
            node.environment |= collector.environment
        yield one, two


@pytest.fixture
def nodes(pair: Pair) -> Pair:
    """Both, each with partitions."""
    start(*pair)

    def settled() -> bool:
        told = pair[0].operate("GET", "/nodes")["nodes"]
        return [bool(node["node"] and node["node"]["partitions"]) for node in told] == [True, True]

    wait_for(settled, 120)
    return pair


async def test_requests_and_sockets_are_forwarded(nodes: Pair) -> None:
    one, two = nodes
    async with Client(one) as first, Client(two) as second:
        stream = await first.open()
        await second.put(stream, 1)
        # Longer than a buffer of TLS, and more than one request on a connection.
        for _ in range(3):
            body = {"data": base64.b64encode(half_second(1, 1) * 8).decode()}
            path = f"/audio_sessions/{stream.session}/chunks/{len(stream.chunks)}"
            assert (await second.http.put(path, json=body)).status_code == 200
            stream.chunks.append(b"")
        assert (await second.status(stream.session)).status_code == 200
        url = two.url.replace("http", "ws", 1)
        async with line_at(url, f"/audio_sessions/{stream.session}/socket?mode=listen", x_api_key=two.key) as line:
            assert (await line.next())["type"] == "hello"
    told = two.operate("GET", "/nodes")
    assert {node["url"] for node in told["nodes"] if node["node"]} == {one.environment["EARSHOT_ADVERTISE"]} | {
        two.environment["EARSHOT_ADVERTISE"]
    }


async def test_trace_crosses_nodes_and_tells_no_secret(nodes: Pair, collector: Collector) -> None:
    trace, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    headers = {"traceparent": f"00-{trace}-{parent}-01", "X-Api-Key": KEY}
    names = [node.environment["EARSHOT_ADVERTISE"] for node in nodes]
    async with Client(nodes[0]) as first, Client(nodes[1]) as second:
        stream = await first.open()
        for number in range(2):
            body = {"data": base64.b64encode(half_second(1, number) * 2).decode()}
            path = f"/audio_sessions/{stream.session}/chunks/{number}"
            answer = await second.http.put(path, json=body, headers=headers if number else {})
            assert answer.status_code == 200
        speech = ("a secret name.wav", spoken(4), "audio/x-wav")
        form: Any = {"options": (None, '{"speech_analysis": true}'), "audio": speech}
        answer = await first.http.post("/api/v1/analyze_file", files=form, headers=headers)
        job = str(answer.json()["job_id"])
        result = await second.result(job)
    assert WORDS[0] in str(result)
    await until(lambda: collector.named("job", earshot_job_id=shown(job)))
    await until(lambda: len(collector.named(f"process {COMMANDS}", earshot_session_id=shown(stream.session))) == 2)
    zero, one = collector.named(f"process {COMMANDS}", earshot_session_id=shown(stream.session))
    put = "PUT /audio_sessions/{session_id}/chunks/{chunk_sequence}"
    # Each node sends its spans when it likes.
    ours = {(put, of, node) for of in (trace, zero.trace) for node in names} | {("PUT", trace, names[1])}
    await until(lambda: {(span.name, span.trace, span.node) for span in collector.spans} >= ours)

    # Of the client, through both nodes, with a link to the windows; or of the chunk.
    puts = collector.named(put)
    outer, inner = (next(one for one in puts if one.trace == trace and one.node == name) for name in reversed(names))
    (between,) = (one for one in collector.named("PUT") if one.trace == trace)
    assert (outer.parent, between.parent, inner.parent) == (parent, outer.id, between.id)
    assert inner.links == outer.links == [(one.trace, one.id)]
    assert {put.node for put in puts if put.trace == zero.trace} == set(names)
    assert zero.node == one.node == names[0]

    # The job, its service and the call of the engine, linked by the request.
    (of_job,) = collector.named("job", earshot_job_id=shown(job))
    (service,) = collector.named("service speech_analysis", earshot_job_id=shown(job))
    calls = [call for call in collector.spans if call.parent == service.id]
    assert (of_job.trace, of_job.id) == (service.trace, service.parent)
    assert {call.name for call in calls} == {"POST /v1/audio/transcriptions"}
    asked = [one for one in collector.named("POST /api/v1/analyze_file") if one.trace == trace]
    assert [(of_job.trace, of_job.id)] in [one.links for one in asked]

    secrets = (KEY, ORG_KEY, ADMIN_KEY, ENGINE_KEY, stream.session, job, "secret name", WORDS[-3])
    assert not [secret for secret in secrets if secret.encode() in collector.bytes]
    lines = [json.loads(line) for node in nodes for line in node.log.read_text().splitlines() if line.startswith("{")]
    assert {line["node"] for line in lines if line.get("trace_id") == trace} >= {names[0]}
    assert [line["event"] for line in lines if line["event"].startswith("traces.")] == ["traces.on"] * 2


def test_untrusted_certificates_are_one_line_at_the_start(nodes: Pair, certificates: Path, tmp_path: Path) -> None:
    shared = {name: value for name, value in nodes[0].environment.items() if name.startswith("EARSHOT_")}
    for name, made, reason in (
        ("expired", certificate(certificates, "own", "expired", "210101000000Z"), "certificate has expired"),
        ("foreign", certificate(certificates, "other", "foreign"), "unable to get local issuer certificate"),
    ):
        where = address()
        settings = {key.removeprefix("EARSHOT_").lower(): value for key, value in shared.items()} | made | where
        del settings["data"], settings["port"]
        process = ServiceProcess(tmp_path / name, **settings).start(wait=0)
        assert process.process is not None
        assert process.process.wait(60) == 2
        (said,) = [line for line in process.log.read_text().splitlines() if not line.startswith("{")]
        line = f"earshot: EARSHOT_NODE_CERTIFICATE: the certificate at {where['advertise']} is not trusted: {reason}"
        assert said == line
