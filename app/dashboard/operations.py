"""Operations of the dashboard: its files, sign-in by a link, and sign-out."""

from typing import Annotated, Final

import msgspec
import structlog

from app.dashboard import files
from app.dashboard.dashboard_context import DashboardContext
from app.http.bodies import SMALL_BODY, decode
from app.http.call import Call
from app.http.replies import NO_CONTENT, Reply, once_reply, reply_unless_known
from topics.errors import NotFound

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

INDEX: Final = "index.html"


class Link(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Body of a sign-in: the token of a link."""

    token: Annotated[str, msgspec.Meta(min_length=1, max_length=200, description="The link's; works once.")]


class Passes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Body of a sign-out: the session tokens to end."""

    project: Annotated[str | None, msgspec.Meta(description="The project's token, or null.")]
    organization: Annotated[str | None, msgspec.Meta(description="The organization's token, or null.")]


_LINK: Final = msgspec.json.Decoder(Link)
_PASSES: Final = msgspec.json.Decoder(Passes)


async def to_dashboard(call: Call, context: DashboardContext) -> Reply:
    """GET /dashboard: redirects to the slash, because the pages have relative addresses."""
    root = str(call.scope.get("root_path", ""))
    return Reply(308, [(b"location", f"{root}/dashboard/".encode("latin-1")), (b"content-length", b"0")])


async def read_file(call: Call, context: DashboardContext) -> Reply:
    """GET /dashboard/{file}: one of the files, or 304 if the browser has it."""
    name = call.path("file") or INDEX
    if name not in files.names():
        raise NotFound("Not Found")
    file = files.read(name)
    packed = b"gzip" in call.header(b"accept-encoding")
    body, etag = (file.packed, file.packed_etag) if packed else (file.content, file.etag)
    kind = b"content-type", file.kind.encode("ascii")
    reply = reply_unless_known(call.header(b"if-none-match"), etag, kind, body, file.headers)
    if packed and reply.body:
        reply.headers.append((b"content-encoding", b"gzip"))
    return reply


async def sign_in(call: Call, context: DashboardContext) -> Reply:
    """POST /dashboard/sign-in: exchange a link for session tokens."""
    link = decode(_LINK, await call.body(SMALL_BODY))
    context.tries.check(call.address)
    try:
        passes = await context.sign_ins.redeem(link.token)
    except NotFound:
        context.tries.count(call.address)
        raise
    log.info("signed in by a link")
    return once_reply(passes)


async def sign_out(call: Call, context: DashboardContext) -> Reply:
    """POST /dashboard/sign-out: end session tokens. No key ends."""
    passes = decode(_PASSES, await call.body(SMALL_BODY))
    context.tries.check(call.address)
    for keys, passed in ((context.project_keys, passes.project), (context.organization_keys, passes.organization)):
        if passed is None:
            continue
        ended = await context.sign_ins.end(passed)
        if not ended:
            context.tries.count(call.address)
        keys.forget(passed, ended)
    return NO_CONTENT
