"""Operations for whoever runs the service: is it alive, is it ready, what does it count."""

from __future__ import annotations

from app.http.operation import Call
from app.http.replies import Reply, json_reply
from topics.errors import Unavailable


async def healthz(call: Call) -> Reply:
    """GET /healthz: 503 with the reason once the process is about to stop."""
    return _probe(call.edge.health.alive())


async def readyz(call: Call) -> Reply:
    """GET /readyz: 503 with what is waited for until requests can be served."""
    return _probe(call.edge.health.ready())


async def metrics(call: Call) -> Reply:
    """GET /metrics: the Prometheus text format."""
    exposition = call.edge.meters.exposition()
    content_type = b"text/plain; version=1.0.0; charset=utf-8"
    return Reply(200, [(b"content-type", content_type), (b"content-length", b"%d" % len(exposition))], exposition)


def _probe(reason: str | None) -> Reply:
    if reason is not None:
        raise Unavailable(reason)
    return json_reply({"status": "ok"})
