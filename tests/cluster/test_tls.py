"""Nodes that reach each other by TLS, with certificates of one authority: requests and sockets are forwarded."""

import base64
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.nodes import Pair, Settings, service_nodes, start
from tests.ports import free_port
from tests.process import ServiceProcess
from tests.recovery.load import Client, half_second
from tests.unit.app.sessions.sockets import line_at
from tests.waiting import wait_for

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
def settings(certificates: Path) -> tuple[Settings, Settings]:
    one, two = (certificate(certificates, "own", name) | address() for name in ("one", "two"))
    return one, two


@pytest.fixture(scope="module")
def pair(
    settings: tuple[Settings, Settings], certificates: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pair]:
    with service_nodes(tmp_path_factory.mktemp("nodes"), *settings, node_ca=str(certificates / "own.pem")) as (
        one,
        two,
    ):
        yield one, two


@pytest.fixture
def nodes(pair: Pair) -> Pair:
    """Both, each with partitions."""
    start(*pair)

    def settled() -> bool:
        told = pair[0].operate("GET", "/nodes")["nodes"]
        return [bool(node["node"] and node["node"]["partitions"]) for node in told] == [True, True]

    wait_for(settled, 60)
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
