"""Node health for operators: self-reports, derived states, and nodes that do not answer."""

import asyncio
from collections.abc import Mapping
from typing import Any
from unittest import mock

import httpx2
import msgspec
import pytest
from starlette.applications import Starlette

from app.admin.admin_bodies import LETTER, NODE, NodesReport, PutBack
from app.admin.health import findings, worst
from app.admin.nodes import NodeList
from app.cluster.forwarding import UNTRUSTED, Forwarder
from app.http.metrics import Meters
from app.http.replies import NO_CONTENT, Reply, json_reply
from app.main import admin_routes
from tests.contract.answers import watched
from tests.unit.app.conftest import behind_a_server
from topics import apikeys
from topics.errors import Unavailable
from topics.ports.nodes import (
    AsideFacts,
    DeadLetter,
    DiskFacts,
    EngineFacts,
    NodeFacts,
    Nodes,
    PartitionFacts,
    QueueFacts,
    WorkerFacts,
)

KEY = "the operator's own key"
WELL = msgspec.structs.replace(NODE, parked=None, disks=[], engines=[])
HERE, THERE = "http://barn:8000", "http://shed:8000"

ENGINE = EngineFacts("speech", "http://box:8000", None, True, 2, 0, 0, 4)


def changed(**fields: Any) -> NodeFacts:
    return msgspec.structs.replace(WELL, **fields)


@pytest.mark.parametrize(
    ("facts", "state", "said"),
    [
        (WELL, "good", []),
        (changed(not_ready="partition 3: its changelog"), "bad", ["not ready: partition 3: its changelog"]),
        (changed(log_error="no answer"), "bad", ["the log: no answer"]),
        (
            changed(partitions=[PartitionFacts(7, "stopped", 0, [], "20 of 21 records")]),
            "bad",
            ["partition 7 has stopped: 20 of 21 records; see `earshot partitions list`"],
        ),
        (
            changed(engines=[msgspec.structs.replace(ENGINE, reachable=False, failing=True)]),
            "bad",
            ["the speech engine at http://box:8000 does not answer"],
        ),
        (
            changed(engines=[msgspec.structs.replace(ENGINE, failing=True, error="status 500")]),
            "slow",
            ["the last call of the speech engine failed: status 500"],
        ),
        (changed(engines=[msgspec.structs.replace(ENGINE, failures=1, error="long ago")]), "good", []),
        (
            changed(disks=[DiskFacts("data", 10**12, 10**8, 2 * 10**8)]),
            "bad",
            ["0.1 GB are free on the disk of data: uploads are refused (EARSHOT_UPLOAD_FREE_BYTES)"],
        ),
        (
            changed(disks=[DiskFacts("data", 10**12, 4 * 10**10, 10**8)]),
            "slow",
            ["40.0 GB are free on the disk of data"],
        ),
        (changed(disks=[DiskFacts("data", 10**12, 6 * 10**10, 10**8)]), "good", []),
        (changed(queues=[QueueFacts("uploads", 81, 100, 0, 4)]), "slow", ["81% full: uploads"]),
        (changed(queues=[QueueFacts("uploads", 80, 100, 3, 4), QueueFacts("sessions", items=10**6)]), "good", []),
        (
            changed(workers=[WorkerFacts(None, None, "starting", 0, 0, 3, 1)]),
            "bad",
            ["no worker process runs: no audio is analysed"],
        ),
        (changed(workers=[]), "good", []),
        (changed(database_error="the database is damaged"), "bad", ["the database is damaged"]),
        (changed(rebuilt=["a table was rebuilt"]), "slow", ["a table was rebuilt"]),
        (changed(lost=["a log is too short"]), "bad", ["a log is too short"]),
        (
            changed(aside=AsideFacts("/data/tables/partitions", 2, 3_400_000)),
            "slow",
            [
                "2 damaged tables were set aside and take 3.4 MB: remove *.damaged-* in /data/tables/partitions "
                "once you know why"
            ],
        ),
        (changed(outdated_speakers="2 of 2 speakers"), "slow", ["2 of 2 speakers"]),
        (changed(lag_seconds=11.0), "slow", ["audio has waited for 11 s to be analysed"]),
        (changed(job_lag_seconds=301.0), "slow", ["a job has waited for 301 s"]),
        (changed(clock_ahead_seconds=-5.0), "good", []),
        (
            changed(clock_ahead_seconds=-5.6),
            "slow",
            ["the clock of this machine is 6 s behind the log's: synchronise both"],
        ),
        (changed(parked=NODE.parked), "slow", ["1 records could not be read and were set aside"]),
    ],
)
def test_findings_of_node(facts: NodeFacts, state: str, said: list[str]) -> None:
    found = findings(facts)
    assert (worst(finding.state for finding in found), [finding.text for finding in found]) == (state, said)


def test_worst_finding_comes_first() -> None:
    found = findings(changed(lag_seconds=99.0, not_ready="the node is about to stop"))
    assert [finding.state for finding in found] == ["bad", "slow"]


class Elsewhere(Forwarder):
    """Other nodes, by URL."""

    def __init__(self, **answers: Any) -> None:
        super().__init__(1.0)
        self.answers = {f"http://{name}:8000": answer for name, answer in answers.items()}

    async def forward(self, scope: Any, owner: str, body: Any, *options: Any, **named: Any) -> Any:
        answer = self.answers[owner]
        if isinstance(answer, Exception):
            raise answer
        if answer is None:
            await asyncio.sleep(60)
        return answer


def asked(
    forwarder: Elsewhere, facts: NodeFacts = WELL, passed_on: bool = False, lanes: Mapping[str, int] | None = None
) -> httpx2.Response:
    """Return the answer of a node that knows other nodes."""
    nodes = mock.Mock(spec=Nodes)
    nodes.elsewhere.return_value = list(forwarder.answers)
    nodes.facts = mock.AsyncMock(return_value=facts)
    listed = NodeList(nodes, forwarder, lambda: [QueueFacts("bodies", 1, 2)], lanes or {})
    return asyncio.run(request(app_of(listed), forwarder, "GET", "/nodes", passed_on))


def app_of(listed: NodeList) -> Starlette:
    administration: Any = mock.Mock()
    return Starlette(routes=admin_routes(administration, listed, apikeys.digest(KEY), Meters(tuple), mock.Mock()))


async def request(
    app: Starlette, forwarder: Elsewhere, method: str, path: str, passed_on: bool, json: object = None
) -> httpx2.Response:
    keyed = {"Authorization": f"Bearer {KEY}"} | ({"X-Earshot-Forwarded": "1"} if passed_on else {})
    async with watched(httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url=HERE)) as http:
        answer = await http.request(method, f"/admin/v1{path}", headers=keyed, json=json)
    await forwarder.close()
    return answer


LETTER_AT = f"/dead-letters/{LETTER.topic}/{LETTER.partition}/{LETTER.offset}"


def lettered(method: str, path: str, owner: str | None = None, passed_on: bool = False) -> tuple[httpx2.Response, Any]:
    """Return the answer of a node to a request about a dead letter, and the node's double."""
    nodes = mock.Mock(spec=Nodes)
    nodes.owner.return_value = owner
    nodes.dead_letter = mock.AsyncMock(return_value=LETTER)
    nodes.put_back = mock.AsyncMock(return_value=29)
    forwarder = Elsewhere(shed=json_reply(PutBack(31)))
    app = app_of(NodeList(nodes, forwarder, tuple))
    return asyncio.run(request(app, forwarder, method, path, passed_on)), nodes


def test_dead_letter_is_read_and_put_back_by_the_owner_of_its_partition() -> None:
    answer, nodes = lettered("GET", LETTER_AT)
    assert msgspec.json.decode(answer.content, type=DeadLetter) == LETTER
    nodes.dead_letter.assert_awaited_once_with(LETTER.topic, 0, 17)
    answer, nodes = lettered("POST", LETTER_AT)
    assert answer.json() == {"offset": 29}
    nodes.put_back.assert_awaited_once_with(LETTER.topic, 0, 17)
    answer, nodes = lettered("POST", LETTER_AT, THERE)
    assert answer.json() == {"offset": 31}
    nodes.put_back.assert_not_awaited()
    answer, nodes = lettered("POST", LETTER_AT, THERE, passed_on=True)
    assert answer.json() == {"offset": 29}


@pytest.mark.parametrize("reference", ["", "17", "topic/17", "topic/0/-1", "topic/0/x", "topic/²/1"])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_dead_letter_needs_topic_partition_and_offset(method: str, reference: str) -> None:
    answer, _ = lettered(method, f"/dead-letters/{reference}")
    assert answer.status_code == 404
    assert "there is no dead letter" in answer.json()["error"]


def report(answer: httpx2.Response) -> NodesReport:
    assert answer.status_code == 200
    return msgspec.json.decode(answer.content, type=NodesReport)


def own(**fields: Any) -> Reply:
    return Reply(200, [], asked(Elsewhere(), changed(**fields), passed_on=True).content)


def test_single_node_reports_itself_and_edge() -> None:
    told = report(asked(Elsewhere()))
    assert (told.state, told.partitions, told.missing) == ("good", 1, [])
    (node,) = told.nodes
    assert node.url == HERE
    assert node.node is not None
    assert node.node.queues[-1] == QueueFacts("bodies", 1, 2)


def test_reports_of_nodes_are_merged() -> None:
    here = changed(partition_count=3, partitions=[PartitionFacts(0, "serving", 1, [])])
    there = own(url="http://0.0.0.0:1", lag_seconds=30.0, partitions=[PartitionFacts(1, "serving", 1, [])])
    told = report(asked(Elsewhere(shed=there), here))
    # Uses the requested name, not the node's own.
    assert [(node.url, node.state) for node in told.nodes] == [(HERE, "good"), (THERE, "slow")]
    assert (told.state, told.missing) == ("bad", [2])


def test_slow_node_makes_cluster_slow() -> None:
    assert report(asked(Elsewhere(shed=own(lag_seconds=30.0)))).state == "slow"
    assert report(asked(Elsewhere(shed=own()))).state == "good"


def test_partition_being_taken_over_counts_as_missing() -> None:
    told = report(asked(Elsewhere(), changed(partitions=[PartitionFacts(0, "coming", 1, [])])))
    assert (told.state, told.missing) == ("bad", [0])


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (Unavailable("gone"), "it does not answer"),
        (Unavailable(f"{UNTRUSTED}it has expired"), "its certificate is not trusted: it has expired"),
        (None, "it did not answer within 0.05 s"),
        (Reply(401, [], b"{}"), "it has another operator's key"),
        (Reply(404, [], b"{}"), "its operator's interface has an address of its own"),
        (Reply(503, [], b"{}"), "it answers 503"),
        (Reply(200, [], b"<html>"), "it is of another version"),
        (Reply(200, [], b'{"url": "x", "state": "good", "findings": []}'), "it is of another version"),
    ],
)
def test_unreachable_node_is_listed_with_reason(monkeypatch: pytest.MonkeyPatch, answer: Any, reason: str) -> None:
    monkeypatch.setattr("app.admin.nodes.NODE_SECONDS", 0.05)
    _, silent = report(asked(Elsewhere(shed=answer))).nodes
    assert (silent.url, silent.state, silent.node) == (THERE, "bad", None)
    assert silent.findings[0].text.startswith(reason)


def test_lane_that_does_not_answer_is_named() -> None:
    _, silent = report(asked(Elsewhere(shed=Unavailable("gone")), lanes={THERE: 3})).nodes
    assert [finding.text for finding in silent.findings] == ["lane 3: it does not answer"]


def test_forwarded_request_is_not_forwarded_again() -> None:
    answer = asked(Elsewhere(shed=RuntimeError("asked")), passed_on=True)
    assert answer.json()["url"] == HERE


@pytest.mark.parametrize(
    ("url", "passed_on", "status"),
    [(HERE, False, 204), (HERE, True, 204), (THERE, False, 204), ("http://no", False, 404)],
)
def test_named_node_is_drained(url: str, passed_on: bool, status: int) -> None:
    nodes = mock.Mock(spec=Nodes, url=HERE, elsewhere=lambda: [THERE])
    forwarder = Elsewhere(shed=NO_CONTENT)
    app = app_of(NodeList(nodes, forwarder, tuple))
    answer = asyncio.run(request(app, forwarder, "POST", "/nodes/drain", passed_on, {"url": url}))
    assert answer.status_code == status
    assert nodes.drain.called == (url == HERE)
    if status == 404:
        assert f"there are {HERE}, {THERE}" in answer.json()["error"]


def test_drain_of_unnamed_node_is_refused() -> None:
    nodes, forwarder = mock.Mock(spec=Nodes, url=HERE), Elsewhere()
    answer = asyncio.run(
        request(app_of(NodeList(nodes, forwarder, tuple)), forwarder, "POST", "/nodes/drain", False, {})
    )
    assert answer.status_code == 400
    nodes.drain.assert_not_called()


def test_operator_key_is_forwarded_to_other_nodes() -> None:
    """A real hop: the other node receives the operator's key and the mark of a forwarded request."""
    heard: list[dict[str, Any]] = []
    told_there = own().body
    length = [(b"content-length", b"%d" % len(told_there))]

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        heard.append(scope)
        await send({"type": "http.response.start", "status": 200, "headers": length})
        await send({"type": "http.response.body", "body": told_there})

    with behind_a_server(answer) as there:
        forwarder = Elsewhere()
        forwarder.answers = {there: None}
        with mock.patch.object(Elsewhere, "forward", Forwarder.forward):
            told = report(asked(forwarder))
    assert told.nodes[1].node is not None
    (request,) = heard
    assert request["path"] == "/admin/v1/nodes"
    headers = dict(request["headers"])
    assert headers[b"authorization"] == f"Bearer {KEY}".encode()
    assert headers[b"x-earshot-forwarded"] == b"1"
